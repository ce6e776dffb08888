"""Which attributes have values that stand in each other's, by labels: these cannot be exclusive of each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import combinations

from hpd_core import Attribute, CategorySchema
from pipelines.quality.gold import GoldProduct, GoldValue

_OFTEN = 0.1
"""Of the products with labels for both."""

Sharing = Mapping[tuple[str, str], frozenset[str]]
"""Category and name of an attribute -> names of those that share its text."""


def shared_text(products: Iterable[GoldProduct]) -> Sharing:
    """Attributes that share text: of at least one in ten products with both values, one stands in the other."""
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
    """The schemas with all single texts exclusive, but of what shares theirs."""
    by_category: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for (category, name), others in sharing.items():
        by_category[category][name] = others
    found = {}
    for category, schema in schemas.items():
        attributes = exclusive_attributes(schema.attributes, by_category[category])
        found[category] = schema.model_copy(update={"attributes": tuple(attributes)})
    return found


def exclusive_attributes(attributes: Collection[Attribute], sharing: Mapping[str, Set[str]]) -> list[Attribute]:
    """The attributes, of which single texts are exclusive. `sharing`: by name those that each may share its text with,
    of which what is no single text is left out."""
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
