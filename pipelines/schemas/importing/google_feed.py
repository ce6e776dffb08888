"""Attributes of products, with their values, in Google Merchant Center's product data specification.

Public facts, as published for feeds in 2026: names and values must be written in English, exactly like this.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpd_core import Attribute, Member, Unit

APPAREL_ONLY = frozenset({"size_type", "size_system"})
"""Attributes that are refused for products other than apparel."""

_ENUMS: Mapping[str, tuple[Member, ...]] = {
    "age_group": (
        Member(label="newborn", description="up to 3 months"),
        Member(label="infant", description="3 to 12 months"),
        Member(label="toddler", description="1 to 5 years"),
        Member(label="kids", description="5 to 13 years"),
        Member(label="adult", description="teens and older"),
    ),
    "gender": (
        Member(label="male", synonyms=("men", "men's", "man", "boys", "boy's")),
        Member(label="female", synonyms=("women", "women's", "woman", "ladies", "girls", "girl's")),
        Member(label="unisex"),
    ),
    "condition": (
        Member(label="new"),
        Member(label="refurbished", synonyms=("renewed", "reconditioned")),
        Member(label="used", synonyms=("second hand", "pre-owned")),
    ),
    "size_type": (
        Member(label="regular"),
        Member(label="petite"),
        Member(label="maternity"),
        Member(label="big"),
        Member(label="tall"),
        Member(label="plus", synonyms=("plus size",)),
    ),
    "size_system": tuple(
        Member(label=system) for system in ("US", "UK", "EU", "DE", "FR", "JP", "CN", "IT", "BR", "MEX", "AU")
    ),
    "energy_efficiency_class": tuple(
        Member(label=grade) for grade in ("A+++", "A++", "A+", "A", "B", "C", "D", "E", "F", "G")
    ),
}
_DESCRIPTIONS: Mapping[str, str] = {
    "brand": "the brand that the product is known by, not the shop's",
    "mpn": "the manufacturer's part number",
    "color": "the main colours, up to three, joined by a slash",
    "size": "as printed on the product",
    "size_type": "the cut",
    "size_system": "the country whose sizes these are",
    "material": "the main fabric or material, up to three, joined by a slash",
    "pattern": "the pattern or print",
    "age_group": "whom it is for",
    "gender": "whom it is for",
    "condition": "at the time of sale",
    "multipack": "how many identical products are sold as one",
    "is_bundle": "whether several different products are sold as one",
    "energy_efficiency_class": "as on the energy label",
    "product_length": "of the product itself",
    "product_width": "of the product itself",
    "product_height": "of the product itself",
    "product_weight": "of the product itself",
}
# A feed takes in as well, and kg, oz, lb. A text may have any unit that can be made these.
_LENGTH, _WEIGHT = Unit(want="cm"), Unit(want="g")
_UNITS: Mapping[str, Unit | None] = {
    "multipack": None,
    "product_length": _LENGTH,
    "product_width": _LENGTH,
    "product_height": _LENGTH,
    "product_weight": _WEIGHT,
}
_BOOLEANS = frozenset({"is_bundle"})


def feed_attributes() -> dict[str, Attribute]:
    """Return name -> attribute; ids are the names in a feed."""
    return {name: _attribute(name, description) for name, description in _DESCRIPTIONS.items()}


def _attribute(name: str, description: str) -> Attribute:
    if name in _ENUMS:
        return Attribute(name=name, id=name, description=description, type="enum", values=_ENUMS[name])
    if name in _UNITS:
        return Attribute(name=name, id=name, description=description, type="number", unit=_UNITS[name])
    return Attribute(name=name, id=name, description=description, type="boolean" if name in _BOOLEANS else "string")
