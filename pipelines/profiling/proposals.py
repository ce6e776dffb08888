"""Proposed schemas from products' texts: attributes with how often they were seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hpd_core import Attribute
from hpd_core.text.near_names import fold_name
from pipelines.config.importing.imported import Imported, SourceCategory, listed
from pipelines.errors import UsageError
from pipelines.profiling.from_gold import GuessedType, described_counts
from pipelines.profiling.key_values import FoundAttribute, count_pairs
from pipelines.profiling.product_sample import ProductPairs, ProductSample

MAX_CATEGORIES = 50
"""Most categories if the user names none, since nobody would edit a longer schema file."""

_MAX_ATTRIBUTES = 24


def choose_categories(sample: ProductSample, wanted: Sequence[str]) -> dict[str, Sequence[ProductPairs]]:
    """Return the wanted categories, else the most frequent ones. Raises `UsageError` for one not in the sample."""
    if not wanted:
        return dict(list(sample.products.items())[:MAX_CATEGORIES])
    folded = {fold_name(category): category for category in sample.products}
    missing = [name for name in wanted if fold_name(name) not in folded]
    if missing:
        raise UsageError(
            f"--category {missing[0]!r}: no product that was looked at is of it, but of {listed(list(sample.products))}"
        )
    return {folded[fold_name(name)]: sample.products[folded[fold_name(name)]] for name in wanted}


def propose(
    products: Mapping[str, Sequence[ProductPairs]],
    named: Sequence[str] = (),
    *,
    placeholder: str | None = None,
) -> Imported:
    """Propose attributes for each category.

    Args:
        products: category -> products.
        named: names of attributes of all categories, whether texts name them or not; they come first.
        placeholder: attribute of a category that none is proposed for; None: the category is left out.

    Raises:
        UsageError: nothing is proposed for any category.
    """
    counted = count_pairs((category, pairs) for category, each in products.items() for pairs in each)
    proposals = {category: _merged(named, counted.get(category, ()))[:_MAX_ATTRIBUTES] for category in products}
    types: dict[str, set[str]] = defaultdict(set)
    for proposal in chain(*proposals.values()):
        types[proposal.name].add(proposal.kind.type)
    library: dict[str, Attribute] = {}
    categories = []
    for category, each in proposals.items():
        comments = {}
        for proposal in each:
            # An attribute is of one type in all categories, where texts name it and where they do not.
            kind = proposal.kind if len(types[proposal.name]) == 1 else GuessedType()
            handle = _handle(kind.attribute(proposal.name), category, library)
            comments[handle] = _comment(proposal, len(products[category]))
        if not comments and placeholder is not None:
            handle = _handle(Attribute(name=placeholder), category, library)
            comments[handle] = "a placeholder: no attribute is named in the texts"
        if comments:
            categories.append(SourceCategory(category, (category,), tuple(comments), comments=comments))
    if not categories:
        raise UsageError("no text names an attribute, as in 'Colour: red': write the schemas, see docs/schemas.md")
    empty = [category for category, each in proposals.items() if not each]
    notes = [f"{len(empty):,} categories name no attribute in their texts: {listed(empty)}"] if empty else []
    return Imported(f"{sum(map(len, products.values())):,} products", library, categories, notes)


def _merged(named: Iterable[str], counted: Iterable[FoundAttribute]) -> list[FoundAttribute]:
    """Merge attributes: first the named ones, with counts from texts; then the others."""
    by_name = {fold_name(found.name): found for found in counted}
    proposals = [replace(by_name.pop(fold_name(name), FoundAttribute(name)), name=name) for name in named]
    return [*proposals, *by_name.values()]


def _comment(proposal: FoundAttribute, num_products: int) -> str:
    if not proposal.num_rows:
        return "no value of it was seen in the texts looked at"
    share = proposal.num_rows / num_products if num_products else 0.0
    values = f": {described_counts(proposal.values)}" if proposal.values else ""
    return f"in {proposal.num_rows:,} of {num_products:,} products ({share:.0%}){values}"


def _handle(attribute: Attribute, category: str, library: dict[str, Attribute]) -> str:
    """Add the attribute to the library and return its handle: its name, plus the category's if that is taken."""
    handle = attribute.name
    if library.setdefault(handle, attribute) != attribute:
        handle = f"{attribute.name} ({category})"
        library[handle] = attribute
    return handle
