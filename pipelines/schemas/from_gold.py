"""Category schemas from the attributes that gold files are labelled with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import combinations

from hpd_core import Attribute, CategorySchema
from hpd_core.plain_data import Place, dotted
from hpd_core.text.near_names import fold_name
from pipelines.quality.gold import GoldProduct, GoldValue
from pipelines.schemas.guessed_types import GuessedType, described_counts, guessed_type
from pipelines.schemas.importing.imported import Imported, SourceCategory, listed


def schemas_from_gold(products: Iterable[GoldProduct], *, require_values: bool = False) -> dict[str, CategorySchema]:
    """Return schemas with every attribute that `products` are labelled with, as a string.

    Categories are in alphabetical order, attributes by number of labelled products, then name. A category
    whose products have no label at all is left out. Attributes stand in objects where labels do.

    Args:
        products: products of one or more gold files.
        require_values: leave out attributes whose labels are all absent.
    """
    num_labels: dict[str, Counter[str]] = {}
    paths: dict[str, Place] = {}
    with_values: set[tuple[str, str]] = set()
    multiple: set[tuple[str, str]] = set()
    for product in products:
        counter = num_labels.setdefault(product.category, Counter())
        paths |= product.paths
        for name, value in product.values.items():
            counter[name] += 1
            if not value.is_absent:
                with_values.add((product.category, name))
            if len(value.items) > 1:
                multiple.add((product.category, name))
    schemas = {}
    paths = _objects(paths, {name for counter in num_labels.values() for name in counter})
    for category, counter in sorted(num_labels.items()):
        names = sorted(counter, key=lambda name: (-counter[name], name))
        attributes = tuple(
            Attribute(name=name, multiple=(category, name) in multiple, path=paths.get(name, ()))
            for name in names
            if not require_values or (category, name) in with_values
        )
        if attributes:
            schemas[category] = CategorySchema(category=category, attributes=attributes)
    return schemas


def _objects(paths: Mapping[str, Place], names: Collection[str]) -> dict[str, Place]:
    """Return the paths without those through a name that is labelled with a value itself; these keep whole names."""
    return {
        name: place
        for name, place in paths.items()
        if not any(dotted(place[:depth]) in names for depth in range(1, len(place)))
    }


def typed_from_gold(
    products: Sequence[GoldProduct], *, require_values: bool = False, exclusive: bool = False
) -> Imported:
    """Return the schemas of `schemas_from_gold` with guessed types; an attribute has one type in all its categories.

    Comments hold the counts of its values. `exclusive`: make single texts exclusive, except of those they share with.
    """
    schemas = schemas_from_gold(products, require_values=require_values)
    values, forms = _values(products)
    kinds = {name: guessed_type(counts, forms[name]) for name, counts in values.items()}
    library: dict[str, Attribute] = {}
    comments: dict[str, str] = {}
    categories = []
    for category, schema in schemas.items():
        handles = []
        for attribute in schema.attributes:
            name = attribute.name
            handle = f"{name} (several)" if attribute.multiple else name
            typed = kinds.get(name, GuessedType()).attribute(name, multiple=attribute.multiple)
            library[handle] = typed.model_copy(update={"path": attribute.path})
            if counts := values.get(name):
                comments[handle] = f"{counts.total():,} values, {len(counts):,} different: {described_counts(counts)}"
            handles.append(handle)
        categories.append(SourceCategory(category, (category,), tuple(handles)))
    if exclusive:
        sharing: dict[str, set[str]] = defaultdict(set)
        for (_, name), others in shared_text(products).items():
            sharing[name] |= others
        library = dict(zip(library, exclusive_attributes(library.values(), sharing), strict=True))
    return Imported(
        f"{len(products):,} labelled products", library, categories, list(_alike(schemas.values())), comments=comments
    )


def _alike(schemas: Iterable[CategorySchema]) -> Iterator[str]:
    """Yield a note on attributes of one category whose names differ only in capitals and spaces."""
    found = [
        f"{' and '.join(map(repr, names))} in {schema.category!r}"
        for schema in schemas
        for names in _groups(schema)
        if len(names) > 1
    ]
    if found:
        yield f"called alike in the gold, and probably one attribute: {listed(found)}"


def _groups(schema: CategorySchema) -> Iterable[list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for attribute in schema.attributes:
        groups[fold_name(attribute.name)].append(attribute.name)
    return groups.values()


def _values(products: Iterable[GoldProduct]) -> tuple[dict[str, Counter[str]], dict[str, dict[str, set[str]]]]:
    """Return (attribute -> counts of its values by first form, attribute -> first form -> other forms)."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    forms: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for product in products:
        for name, value in product.values.items():
            for first, *others in value.items:
                values[name][first] += 1
                forms[name][first].update(others)
    return values, forms


_OFTEN = 0.1
"""Least share of the products with values for both attributes."""

Sharing = Mapping[tuple[str, str], frozenset[str]]
"""Category and name of an attribute -> names of attributes that share its text."""


def shared_text(products: Iterable[GoldProduct]) -> Sharing:
    """Find attributes that share text: in at least a tenth of the products with both, one value contains the other."""
    together: Counter[tuple[str, str, str]] = Counter()
    shared: Counter[tuple[str, str, str]] = Counter()
    for product in products:
        there = sorted((name, value) for name, value in product.values.items() if not value.is_absent)
        for (one, its_value), (other, its_other) in combinations(there, 2):
            together[product.category, one, other] += 1
            shared[product.category, one, other] += _stand_in_each_other(its_value, its_other)
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (category, one, other), count in shared.items():
        if count and count >= _OFTEN * together[category, one, other]:
            found[category, one].add(other)
            found[category, other].add(one)
    return {place: frozenset(names) for place, names in found.items()}


def exclusive_schemas(schemas: Mapping[str, CategorySchema], sharing: Sharing) -> dict[str, CategorySchema]:
    """Make all single texts of the schemas exclusive, except of attributes that share their text."""
    by_category: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for (category, name), others in sharing.items():
        by_category[category][name] = others
    found = {}
    for category, schema in schemas.items():
        attributes = exclusive_attributes(schema.attributes, by_category[category])
        found[category] = schema.model_copy(update={"attributes": tuple(attributes)})
    return found


def exclusive_attributes(attributes: Collection[Attribute], sharing: Mapping[str, Set[str]]) -> list[Attribute]:
    """Make the single texts among the attributes exclusive.

    `sharing`: name -> attributes that it may share its text with; only single texts among them are used.
    """
    texts = {each.name for each in attributes if _is_single_text(each)}
    return [
        each.model_copy(
            update={"verbatim": "exclusive", "shares_text_with": tuple(sorted(texts & sharing.get(each.name, set())))}
        )
        if _is_single_text(each)
        else each
        for each in attributes
    ]


def _is_single_text(attribute: Attribute) -> bool:
    return attribute.type == "string" and not attribute.multiple


def _stand_in_each_other(one: GoldValue, other: GoldValue) -> bool:
    texts, others = ([form for forms in value.items for form in forms] for value in (one, other))
    return any(a in b or b in a for a in texts for b in others)
