"""Google's product taxonomy: a text file of paths, with ids or without, joined with the attributes of product feeds.

    # Google_Product_Taxonomy_Version: 2021-09-21
    166 - Apparel & Accessories
    1604 - Apparel & Accessories > Clothing

The taxonomy has no attributes. Those of a product feed are below.

Attributes of products, with their values, in Google Merchant Center's product data specification.

Public facts, as published for feeds in 2026: names and values must be written in English, exactly like this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hpd_core import Attribute, Member, Unit
from pipelines.config.importing.imported import PATH_SIGN, Imported, SourceCategory, one_line
from pipelines.config.importing.sources import Document
from pipelines.errors import UsageError

_VERSION = re.compile(r"#\s*Google_Product_Taxonomy_Version:\s*(\S+)")
_LINE = re.compile(r"(?:(\d+)\s+-\s+)?(\S.*)")
_MAX_SAMPLE = 20  # lines that tell whether a file without a version is a taxonomy
_APPAREL_ID, _APPAREL_NAME = "166", "Apparel & Accessories"


def recognises(document: Document) -> bool:
    """Return whether the file is a taxonomy, by its version line or because its first lines are paths."""
    text = document.text.lstrip()
    if _VERSION.match(text):
        return True
    if text[:1] in ("{", "[") or document.rows:
        return False
    lines = [line.strip() for line in text.split("\n")[:_MAX_SAMPLE] if line.strip()]
    if len(lines) < 2:
        return False
    if all(re.match(r"\d+\s+-\s+\S", line) for line in lines):
        return True
    return any(PATH_SIGN in line for line in lines) and all(
        _is_below(line, lines) for line in lines if PATH_SIGN in line
    )


def _is_below(line: str, lines: Sequence[str]) -> bool:
    return line.rsplit(PATH_SIGN, 1)[0] in lines


def read(documents: Sequence[Document]) -> Imported:
    """Read the taxonomy; every category has the feed's attributes. Raises `UsageError` for any other line."""
    categories = [category for document in documents for category in _categories(document)]
    if not categories:
        raise UsageError(f"{documents[0].name}: no category is in it")
    found = (_VERSION.match(document.text.lstrip()) for document in documents)
    version = next((match[1] for match in found if match), "")
    return Imported(
        f"Google's product taxonomy {version}".strip(),
        feed_attributes(),
        categories,
        [
            "the taxonomy has no attributes: these are what Google Merchant Center's product data specification names, "
            "strike out what your texts do not say"
        ],
    )


def _categories(document: Document) -> Iterator[SourceCategory]:
    by_path: dict[tuple[str, ...], str] = {}
    everything = tuple(feed_attributes())
    for number, line in enumerate(document.text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        path = tuple(one_line(part) for part in match[2].split(PATH_SIGN.strip())) if match else ()
        if match is None or not all(path):
            raise UsageError(f"{document.name}, line {number}: {line.strip()!r} is no path such as 'Home > Kitchen'")
        identity = match[1] or PATH_SIGN.join(path)
        if path in by_path:
            raise UsageError(f"{document.name}, line {number}: {PATH_SIGN.join(path)!r} is there twice")
        above = by_path.get(path[:-1])
        by_path[path] = identity
        # A child has what its parent has; an apparel's root has more than others.
        is_apparel = (by_path.get(path[:1]) == _APPAREL_ID) or path[0] == _APPAREL_NAME
        own = tuple(each for each in everything if is_apparel or each not in APPAREL_ONLY)
        # A feed names a category by its id as often as by its path.
        aliases = (match[1],) if match[1] else ()
        yield SourceCategory(identity, path, () if above else own, above, aliases, match[1])


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
