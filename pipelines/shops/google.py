"""Google's product taxonomy: a text file of paths, with ids or without, joined with the attributes of product feeds.

    # Google_Product_Taxonomy_Version: 2021-09-21
    166 - Apparel & Accessories
    1604 - Apparel & Accessories > Clothing

The taxonomy has no attributes. Those of a product feed are below.

Attributes of products, with their values, in Google Merchant Center's product data specification.

Public facts, as published for feeds in 2026: names and values must be written in English, exactly like this.

Merchant feeds: answers go into the attributes of the product data specification (support.google.com/merchants/answer/
7052112), whose pages are support.google.com/merchants/answer/ and the number behind each rule, and others into
`product_detail`. Rules with a date were read there, in copies that may be older than the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hpd_core import Attribute, Member, Unit
from pipelines.config.importing.imported import PATH_SIGN, Imported, SourceCategory, one_line
from pipelines.config.importing.kinds import SchemaSource
from pipelines.config.importing.sources import Document
from pipelines.errors import UsageError
from pipelines.exporting.targets import NewFile, Shop, ShopWishes, TargetAsked, TargetColumn, find_place, folded_name
from pipelines.exporting.value_forms import Rule
from pipelines.shops.google_feed import PRODUCT_DETAIL, FeedOriginal

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


SOURCE = SchemaSource("google", recognises, lambda documents, _: read(documents))


def _labels(name: str) -> tuple[str, ...]:
    return tuple(member.label for member in _ENUMS[name])


_COLOR = r"[^#,]*[^\W\d_][^#,]*[^\W\d_][^#,]*|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_NO_COLORS = ("n/a", "see image", "various", "variety", "men", "men's", "women", "women's")
_LENGTH_RULE = Rule("measure", choices=("cm", "in"), least=1, most=3000)
GOOGLE: Mapping[str, Rule] = {
    "title": Rule(max_length=150),  # 6324415
    "description": Rule(max_length=5000),  # 6324468
    "brand": Rule(max_length=70, refused=("n/a", "generic", "no brand", "does not exist")),  # 6324351, 7052112; 11/2026
    "mpn": Rule(max_length=70),  # 6324482, 11/2026
    "gtin": Rule("gtin"),  # 6324461, 11/2026
    "condition": Rule("choice", choices=_labels("condition")),  # 6324469
    "adult": Rule("yes_no"),  # 6324508
    "multipack": Rule("number", least=2, most=1e9, pattern=r"\d+"),  # 6324488
    "is_bundle": Rule("yes_no"),  # 6324449
    "age_group": Rule("choice", choices=_labels("age_group")),  # 6324463, 11/2026
    "gender": Rule("choice", choices=_labels("gender")),  # 6324479
    # 6324487, 11/2026: no commas between colors, no codes (#fff000), not digits alone, nor one letter but of CJK.
    "color": Rule(max_length=100, max_item=40, max_items=3, joint="/", pattern=_COLOR, refused=_NO_COLORS),
    "material": Rule(max_length=200, max_items=3, joint="/"),  # 6324410, 11/2026
    "pattern": Rule(max_length=100),  # 6324483
    "size": Rule(max_length=100),  # 6324492, 11/2026
    "size_type": Rule("choice", max_items=2, joint=",", choices=_labels("size_type")),  # 6324497, 11/2026
    "size_system": Rule("choice", choices=_labels("size_system")),  # 6324502, 11/2026
    "product_length": _LENGTH_RULE,  # 11018531, 11/2026; shown where all three are in one unit
    "product_width": _LENGTH_RULE,
    "product_height": _LENGTH_RULE,
    "product_weight": Rule("measure", choices=("lb", "oz", "g", "kg"), least=0, most=2000),
    # 7562785, 11/2026: with the scale's best and worst class beside it. In the EU `certification` has taken its place.
    "energy_efficiency_class": Rule("choice", choices=_labels("energy_efficiency_class")),
}
"""Rules by the attribute's name; after each the number of its page."""

GOOGLE_DETAILS: Mapping[str, Rule] = {  # 9218260, 11/2026
    "text": Rule(max_length=1000, max_items=1000, joint="; "),
    "number": Rule("quantity", max_length=1000, max_items=1000, joint="; "),
}
"""Rules for values in `product_detail`, by the attribute's type."""

GOOGLE_NAMES = {
    "colour": "color",
    "target_gender": "gender",
    "length": "product_length",
    "width": "product_width",
    "height": "product_height",
    "weight": "product_weight",
}
"""Other names of Google's attributes."""


def google_name(name: str) -> str:
    """Return the name of Google's attribute that a name means, if there is one: "Age group" is age_group."""
    plain = folded_name(name).removeprefix("g:").replace(" ", "_")
    return GOOGLE_NAMES.get(plain, plain)


def _google_columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    """Return the columns; attributes that are not Google's become details of the product.

    Raises `UsageError` if `--columns` names a column that is not Google's.
    """
    columns = []
    for each in asked:
        attribute = each.attribute
        wanted = wishes.columns.get(attribute.name)
        name = google_name(attribute.name if wanted is None else wanted)
        if wanted and name not in (*GOOGLE, PRODUCT_DETAIL):
            raise UsageError(
                f"--columns {attribute.name}={wanted}: no attribute of Google's; there are {', '.join(GOOGLE)}, "
                f"{PRODUCT_DETAIL}"
            )
        if wanted == "":
            continue
        is_detail = name not in GOOGLE
        name = PRODUCT_DETAIL if is_detail else name
        place = find_place(header, name)
        shown = name if place is None else header[place]
        rule = _detail_rule if is_detail else lambda _, rule=GOOGLE[name]: rule
        columns.append(TargetColumn(each, shown, rule, place, detail=attribute.name if is_detail else None))
    return columns


def _detail_rule(attribute: Attribute) -> Rule:
    return GOOGLE_DETAILS["number" if attribute.type == "number" else "text"]


def _is_original(format: str, header: Sequence[str], delimiter: str, wishes: ShopWishes) -> bool:
    return format == "csv" and all(find_place(header, name) is not None for name in ("id", "title"))


SHOP = Shop(
    name="google",
    columns=_google_columns,
    is_original=_is_original,
    id_columns=lambda _: ("id",),
    has_meanings=True,
    new_file=NewFile(
        suffix=".tsv",
        delimiter="\t",
        id_column="id",
        family=None,
        note="It is a supplemental feed: ids, and what was extracted. Google joins it to your own feed by the id.",
    ),
    feed=lambda name, config: FeedOriginal(name, config, google_name),
)
