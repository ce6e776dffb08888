"""Attributes whose labelled values contain each other, and which therefore cannot be exclusive of each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import combinations

from hpd_core import Attribute, CategorySchema
from pipelines.quality.gold import GoldProduct, GoldValue

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
