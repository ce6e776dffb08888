"""Shopify's product CSV: answers go into the columns of metafields, of the category's and of the shop's own.

Google's Merchant feed: answers go into the attributes of its product data specification.

Google's `product_detail` in a text feed: properties of a product by names that the shop chooses, many in one cell.

    Display:Resolution:432 x 240,:Lining:"cotton, linen"     section (may be empty), name, value

Published for text data sources: support.google.com/merchants/answer/9218260.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from hpd_core import Attribute
from pipelines.config.importing.akeneo import SYMBOLS
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedItem
from pipelines.exporting.targets import Extra, ShopWishes, Target, TargetAsked, TargetColumn, find_place, folded_name
from pipelines.exporting.value_forms import (
    AKENEO,
    AKENEO_CODE,
    AKENEO_RESERVED,
    GOOGLE,
    GOOGLE_DETAILS,
    GOOGLE_NAMES,
    SHOPIFY,
    SPELLINGS,
    Rule,
    is_sluggable,
    slug,
)
from pipelines.normalising.member_names import name_and_signs

HANDLES = ("handle", "url handle")
_METAFIELD = re.compile(r"(?P<label>.*?)\s*\(product\.metafields\.(?P<namespace>[^.()]+)\.(?P<key>[^.()]+)\)\s*")
_GOOGLE = re.compile(r"google shopping / (?P<name>.+)", re.IGNORECASE)
_TAXONOMY = "gid://shopify/TaxonomyAttribute/"
_TAXONOMY_VALUE = "gid://shopify/TaxonomyValue/"
_NAMESPACE = "shopify"
"""Namespace of metafields that come with a category of Shopify's taxonomy."""
_CUSTOM = "custom"
"""Namespace of metafields that a shop defines."""
_OTHER_KEYS = dict.fromkeys(("color", "colour", "farbe", "couleur", "colore", "farg", "kleur"), "color-pattern")
"""Attributes of the taxonomy -> the key of their metafield, if it is another word."""
_MAX_KEY = 64


def _columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    columns = []
    there = {key: place for place, name in reversed([*enumerate(header)]) if (key := _key_of(name))}
    # A metafield is one column, whatever label the user gives it.
    new = {key: name for name in wishes.columns.values() if (key := _key_of(name))}
    for each in asked:
        attribute, key = each.attribute, _key(each.attribute)
        name = wishes.columns.get(attribute.name)
        if name is None:
            place = _place(header, attribute)
            # Its key is that of another metafield, and not all of its name.
            is_taken = place is None and key in there
            name = "" if is_taken else new.setdefault(key, _new_name(attribute)) if place is None else header[place]
        else:
            own = _key_of(name)
            place = find_place(header, name) if own is None else there.get(own)
            name = header[place] if place is not None else new[own] if own is not None else name
        if name:
            columns.append(TargetColumn(each, name, _rule_of(name), place))
    return columns


def _place(header: Sequence[str], attribute: Attribute) -> int | None:
    """Return the index of the attribute's column, by key, by label, or one that Shopify has for Google; None if there
    is none.

    A metafield of another namespace belongs to an app or to another use, whatever it is called.
    """
    own, key = _key(attribute)
    names = {slug(attribute.name, "-"), slug(attribute.name, "_")} if _is_whole(attribute) else set()
    keys = {key, *names, *(_OTHER_KEYS.get(name, "") for name in names)} - {""} if names else set()
    wanted = folded_name(attribute.name)
    found = [(place, _METAFIELD.fullmatch(name)) for place, name in enumerate(header)]
    for namespace in dict.fromkeys((own, _CUSTOM, _NAMESPACE) if _fits_taxonomy(attribute) else (own, _CUSTOM)):
        metafields = [(place, match) for place, match in found if match and match["namespace"] == namespace]
        places = [place for place, match in metafields if match["key"] in keys]
        places += [place for place, match in metafields if folded_name(match["label"]) == wanted]
        if places:
            return places[0]
    google = ((place, _GOOGLE.fullmatch(name)) for place, name in enumerate(header))
    return next((place for place, match in google if match and folded_name(match["name"]) == wanted), None)


def _key(attribute: Attribute) -> tuple[str, str]:
    """Return the namespace and the key of the attribute's metafield."""
    if (attribute.id or "").startswith(_TAXONOMY) and _fits_taxonomy(attribute):
        handle = slug(attribute.name, "-")
        return _NAMESPACE, _OTHER_KEYS.get(handle, handle)[:_MAX_KEY]
    return _CUSTOM, slug(attribute.name, "_")[:_MAX_KEY]


def _taxonomy_labels(attribute: Attribute) -> tuple[str, ...]:
    """Return the labels of the attribute's values that Shopify's taxonomy has."""
    return tuple(each.label for each in attribute.values or () if (each.id or "").startswith(_TAXONOMY_VALUE))


def _fits_taxonomy(attribute: Attribute) -> bool:
    """Return whether a metafield of the taxonomy can hold its answers: numbers, or values that have an entry."""
    return attribute.type == "number" or bool(_taxonomy_labels(attribute))


def _is_whole(attribute: Attribute) -> bool:
    """Return whether its key keeps all of its name; otherwise names may share a key, such as `eu` for "Размер EU"."""
    return is_sluggable(attribute.name) and len(slug(attribute.name, "_")) <= _MAX_KEY


def _key_of(column: str) -> tuple[str, str] | None:
    """Return the namespace and the key of a metafield's column; None for another column."""
    found = _METAFIELD.fullmatch(column)
    return None if found is None else (found["namespace"], found["key"])


def _new_name(attribute: Attribute) -> str:
    namespace, key = _key(attribute)
    return f"{attribute.name} (product.metafields.{namespace}.{key})" if len(key) > 1 else ""


def _rule_of(name: str) -> Callable[[Attribute], Rule]:
    """Return the rule of the column of this name, as a function of the attribute."""
    match, google = _METAFIELD.fullmatch(name), _GOOGLE.fullmatch(name)
    is_reference = match is not None and match["namespace"] == _NAMESPACE
    for_google = GOOGLE.get(folded_name(google["name"]).replace(" ", "_")) if google else None

    def rule(attribute: Attribute) -> Rule:
        if for_google is not None:
            return for_google
        if is_reference and attribute.type != "number":
            labels, unclear = _taxonomy_labels(attribute), _unclear_handles(attribute)
            return replace(SHOPIFY["reference"], choices=labels, unclear=unclear)
        if attribute.unit is not None and attribute.type == "number":
            return SHOPIFY["measure"]
        return SHOPIFY.get(attribute.type, SHOPIFY["texts" if attribute.multiple else "text"])

    return rule


def _unclear_handles(attribute: Attribute) -> frozenset[str]:
    """Return handles that several members of its vocabulary share: "C" and "C++" would both be `c`."""
    names: defaultdict[str, set[Hashable]] = defaultdict(set)
    for member in attribute.values or ():
        names[slug(member.label, "-")].add(name_and_signs(member.label))
    return frozenset(handle for handle, members in names.items() if len(members) > 1)


def _note(new: Sequence[TargetColumn]) -> str:
    if not new:
        return ""
    return (
        f"New columns: {', '.join(column.name for column in new)}. Shopify imports metafields that are defined in the "
        "shop, or that belong to the product's category."
    )


SHOPIFY_TARGET = Target("shopify", _columns, _note)


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


GOOGLE_TARGET = Target("google", _google_columns, has_meanings=True)


PRODUCT_DETAIL = "product_detail"
SECTION, NAME, VALUE = "section_name", "attribute_name", "attribute_value"
"""Names of a detail's parts, as elements of an XML feed."""

_PART = r'\s*(?:"((?:[^"]|"")*)"|([^:,"]*))\s*'
_DETAIL = re.compile(rf"{_PART}:{_PART}:{_PART}(?:,|\Z)")
_SPECIAL = re.compile(r'[:,"]|\A\s|\s\Z')


class Detail(NamedTuple):
    """Detail of a product. `section` may be empty."""

    section: str
    name: str
    value: str


def read_details(cell: str) -> list[Detail] | None:
    """Return the details of a cell; None if it does not have their form."""
    details, position = [], 0
    while position < len(cell):
        found = _DETAIL.match(cell, position)
        if found is None:
            return None
        parts = (found[2 * n + 1] or found[2 * n + 2] or "" for n in range(3))
        details.append(Detail(*(part.replace('""', '"').strip() for part in parts)))
        position = found.end()
    return details


def write_details(details: Iterable[Detail]) -> str:
    """Return the cell with these details."""
    return ",".join(":".join(map(_quoted, detail)) for detail in details)


def with_detail(cell: str, name: str, value: str, *, overwrites: bool) -> str | None:
    """Return the cell with a value under this name; unchanged if the name has a value, unless `overwrites`.

    Returns None if the cell does not have the form of details.
    """
    details = read_details(cell)
    if details is None:
        return None
    taken = [index for index, each in enumerate(details) if is_called(each.name, name)]
    if not taken:
        separator = "," if details and not cell.rstrip().endswith(",") else ""
        return cell + separator + write_details([Detail("", name, value)])
    if not overwrites and any(details[index].value for index in taken):
        return cell
    details[taken[0]] = details[taken[0]]._replace(value=value)
    return write_details(each for index, each in enumerate(details) if index not in taken[1:])


def is_called(name: str, other: str) -> bool:
    """Return whether two names are of the same detail."""
    return folded_name(name) == folded_name(other)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if _SPECIAL.search(part) else part


def akeneo_code(id_: str | None, name: str) -> str:
    """Return the code of an attribute: its id if that is a code, else one made from its name; "" if neither works.

    A name that would lose letters does not work: "重さ (g)" would become `g`, which another attribute may be called.
    """
    is_code = id_ is not None and re.fullmatch(AKENEO_CODE, id_)
    code = (id_ or "") if is_code else slug(name, "_") if is_sluggable(name) else ""
    return "" if code.lower() in AKENEO_RESERVED else code


def _akeneo_columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    """Return the columns. Raises `UsageError` if the original has an attribute for each locale or channel, and the
    options do not say which."""
    if not header and (wishes.locale or wishes.channel):
        raise UsageError("--locale and --channel say which columns of an original are filled in; a new file has none")
    columns = []
    for each in asked:
        attribute = each.attribute
        wanted = wishes.columns.get(attribute.name)
        code = akeneo_code(attribute.id, attribute.name) if wanted is None else wanted
        if not code:
            continue
        if wanted is None:
            code = _scoped(header, code, wishes, attribute.name)
        unit = Extra(f"{code}-unit", _unit) if attribute.type == "number" and attribute.unit is not None else None
        columns.append(
            TargetColumn(
                *(each, code, _rule, find_place(header, code)),
                *(unit, None if unit is None else find_place(header, unit.name)),
            )
        )
    return columns


def _scoped(header: Sequence[str], code: str, wishes: ShopWishes, name: str) -> str:
    """Return the attribute's column; if the file has one for each locale (`brand-en_US`) or channel, the wanted one.

    Raises `UsageError` if the options do not say which.
    """
    if find_place(header, code) is not None:
        return code
    # A code has no "-". A name that ends in "-unit" is the column beside a number.
    there = [each for each in header if each.startswith(f"{code}-") and not each.endswith("-unit")]
    if not there:
        return code
    locale, channel = ([f"-{each}"] if each else [] for each in (wishes.locale, wishes.channel))
    wanted = [code + scope for scope in (*(a + b for a in locale for b in channel), *locale, *channel)]
    found = next((each for each in wanted if each in there), None)
    if found is None:
        raise UsageError(
            f"the attribute {name!r} has the columns {', '.join(there)} in the original: --locale and --channel say "
            f"which is filled in, or --columns '{name}={there[0]}'"
        )
    return found


def _rule(attribute: Attribute) -> Rule:
    if attribute.type == "enum":
        return AKENEO["multiselect" if attribute.multiple else "select"]
    return AKENEO.get(attribute.type, AKENEO["text"])


def _unit(items: Sequence[ExportedItem]) -> str | None:
    return akeneo_unit(items[0].unit)


AKENEO_TARGET = Target("akeneo", _akeneo_columns)


_CODES = {symbol: code for family in SYMBOLS.values() for code, symbol in family.items()} | {
    **{"L": "LITER", "w": "WATT", "v": "VOLT", "a": "AMPERE", "mhz": "MEGAHERTZ"},
    **{"kB": "KILOBYTE", "day": "DAY", "hr": "HOUR", "hours": "HOUR", "%": "PERCENT"},
}
_KNOWN = frozenset(_CODES.values())


@cache
def akeneo_unit(unit: str | None) -> str | None:
    """Return the code of a unit; None if it has none. Codes themselves are kept."""
    if unit is None or unit in _KNOWN:
        return unit
    symbol = SPELLINGS.get(unit.casefold(), unit)
    if symbol in _CODES:
        return _CODES[symbol]
    found = {code for known, code in _CODES.items() if _is_written(known, symbol)}
    return found.pop() if len(found) == 1 else None


def _is_written(symbol: str, text: str) -> bool:
    """Return whether a text is the symbol in other capitals that keep its meaning: MV is not mV, Mb is not MB."""
    if len(symbol) == 1 or symbol == "cal" or symbol.casefold() != text.casefold():
        return False
    is_milli = symbol[0] in "mM" and symbol[0] != text[0]
    return symbol.islower() or not (is_milli or symbol.endswith("B"))
