"""Proposed schemas from products' texts and a model's answers: attributes with how often they were seen."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hpd_core import Attribute, Unit
from hpd_core.text.near_names import fold_name
from pipelines.config.importing.imported import Imported, SourceCategory, listed
from pipelines.errors import UsageError
from pipelines.profiling.asked_attributes import Named
from pipelines.profiling.asked_products import ProductSample, ProposalProduct
from pipelines.profiling.from_gold import GuessedType, described_counts
from pipelines.profiling.key_values import FoundAttribute, count_pairs

MAX_CATEGORIES = 50
"""Most categories if the user names none, since nobody would edit a longer schema file."""

_MAX_ATTRIBUTES = 24


def choose_categories(sample: ProductSample, wanted: Sequence[str]) -> dict[str, Sequence[ProposalProduct]]:
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
    products: Mapping[str, Sequence[ProposalProduct]],
    named: Mapping[str, Sequence[Named]],
    *,
    placeholder: str | None = None,
) -> Imported:
    """Propose attributes for each category.

    Args:
        products: category -> products.
        named: category -> attributes that a model named; empty if none was asked.
        placeholder: attribute of a category that none is proposed for; None: the category is left out.

    Raises:
        UsageError: nothing is proposed for any category.
    """
    counted = count_pairs((category, product.pairs) for category, each in products.items() for product in each)
    proposals = {
        category: _merged(named.get(category, ()), counted.get(category, ()), each)[:_MAX_ATTRIBUTES]
        for category, each in products.items()
    }
    types: dict[str, set[str]] = defaultdict(set)
    for proposal in chain(*proposals.values()):
        types[proposal.name].add(proposal.kind.type)
    library: dict[str, Attribute] = {}
    categories = []
    for category, each in proposals.items():
        comments = {}
        for proposal in each:
            # An attribute is of one type in all categories: where a model says otherwise of two, it is a text.
            kind = proposal.kind if len(types[proposal.name]) == 1 else GuessedType()
            handle = _handle(kind.attribute(proposal.name, description=proposal.description), category, library)
            comments[handle] = _comment(proposal, len(products[category]))
        if not comments and placeholder is not None:
            handle = _handle(Attribute(name=placeholder), category, library)
            comments[handle] = "a placeholder: no attribute is named in the texts"
        if comments:
            categories.append(SourceCategory(category, (category,), tuple(comments), comments=comments))
    if not categories:
        raise UsageError(
            "no text names an attribute, as in 'Colour: red'; name an OpenAI-compatible endpoint with --endpoint and "
            "--model to have attributes proposed from the texts"
        )
    empty = [category for category, each in proposals.items() if not each]
    notes = [f"{len(empty):,} categories name no attribute in their texts: {listed(empty)}"] if empty else []
    return Imported(f"{sum(map(len, products.values())):,} products", library, categories, notes)


def _merged(
    named: Iterable[Named], counted: Iterable[FoundAttribute], products: Sequence[ProposalProduct]
) -> list[FoundAttribute]:
    """Merge attributes: first those named by a model, in its order, with counts from texts; then the others."""
    by_name = {fold_name(found.name): found for found in counted}
    proposals = []
    for each in named:
        found = by_name.pop(fold_name(each.name), None)
        if found is not None:
            proposals.append(replace(found, name=each.name, description=each.description))
            continue
        kind = GuessedType("number", Unit(want=each.unit) if each.unit else None) if each.is_number else GuessedType()
        seen = Counter({value: sum(_says(value, product) for product in products) for value in each.values})
        total = sum(any(_says(value, product) for value in each.values) for product in products)
        proposals.append(FoundAttribute(each.name, total, +seen, kind, each.description, is_least=True))
    return [*proposals, *by_name.values()]


def _says(value: str, product: ProposalProduct) -> bool:
    """Return whether a product's text contains the value as whole words."""
    pattern = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", re.IGNORECASE)
    return any(pattern.search(text) for text in product.fields.values())


def _comment(proposal: FoundAttribute, num_products: int) -> str:
    if not proposal.num_rows:
        return "no value of it was seen in the texts looked at"
    share = proposal.num_rows / num_products if num_products else 0.0
    least = "at least " if proposal.is_least else ""
    values = f": {described_counts(proposal.values)}" if proposal.values else ""
    return f"in {least}{proposal.num_rows:,} of {num_products:,} products ({share:.0%}){values}"


def _handle(attribute: Attribute, category: str, library: dict[str, Attribute]) -> str:
    """Add the attribute to the library and return its handle: its name, plus the category's if that is taken."""
    handle = attribute.name
    if library.setdefault(handle, attribute) != attribute:
        handle = f"{attribute.name} ({category})"
        library[handle] = attribute
    return handle
