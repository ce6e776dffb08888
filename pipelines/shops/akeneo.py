"""Akeneo: its product CSV filled in (export), and its families, attributes and options read as schemas (import).

Families are the categories. Labels are taken in one language; those in others become synonyms of an option.

Akeneo's unit codes, and the spellings of the same units in texts.

Akeneo's measurement families are public. A unit that is not here (of a custom family) keeps its code in lower case.

Its product CSV (docs.akeneo.com, import_and_export_data/formats/product.html), and codes of attributes
(.../formats/attribute.html).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import yaml

from hpd_core import Attribute, Member, Unit
from pipelines.config.importing.imported import (
    Imported,
    SourceCategory,
    listed,
    named_member,
    one_line,
    readable,
    unique_members,
)
from pipelines.config.importing.kinds import SchemaSource
from pipelines.config.importing.sources import Document, items_of
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedItem
from pipelines.exporting.targets import Extra, NewFile, Shop, ShopWishes, TargetAsked, TargetColumn, find_place
from pipelines.exporting.value_forms import SPELLINGS, Rule, is_sluggable, slug

_LABEL = "label-"
_SELECTS = ("pim_catalog_simpleselect", "pim_catalog_multiselect")
# What texts do not say, or what they are themselves.
_NOT_ASKED = {
    "pim_catalog_identifier": "identifiers",
    "pim_catalog_textarea": "long texts",
    "pim_catalog_price_collection": "prices",
    "pim_catalog_image": "files",
    "pim_catalog_file": "files",
    "pim_catalog_asset_collection": "files",
    "pim_assets_collection": "files",
    "pim_catalog_table": "tables",
}
_EVERYTHING = "products"

Item = Mapping[str, Any]


def recognises(document: Document) -> bool:
    """Return whether the file has families, attributes or options of Akeneo."""
    if document.data is not None:
        return any(map(_kind, items_of(document.data)[:1]))
    names = document.header
    return {"code", "attribute"} <= names or {"code", "attributes"} <= names or _has_types(document)


def _has_types(document: Document) -> bool:
    return {"code", "type"} <= document.header and any(row["type"].startswith("pim_") for row in document.rows)


def read(documents: Sequence[Document], language: str | None = None) -> Imported:
    """Read the families in the files; without families, one category with all attributes.

    Args:
        documents: the files; the one with the attributes is required.
        language: language of names and labels, such as "de_DE" or "de"; None: English, or else the first.

    Raises:
        UsageError: no file has attributes, or none has labels in the language.
    """
    items: dict[str, list[Item]] = defaultdict(list)
    for document in documents:
        for item in items_of(document.data) if document.data is not None else map(_from_row, document.rows):
            items[_kind(item)].append(item)
    if not items["attribute"]:
        raise UsageError(
            f"{listed([each.name for each in documents])}: no attributes in it; give the attributes' export as well"
        )
    _check_language(items, language)
    members = _members(items["option"], language)
    library: dict[str, Attribute] = {}
    left_out: Counter[str] = Counter()
    notes: list[str] = []
    for item in items["attribute"]:
        kind = str(item.get("type"))
        if kind in _NOT_ASKED:
            left_out[_NOT_ASKED[kind]] += 1
            continue
        library[str(item["code"])] = _attribute(item, members.get(str(item["code"]), ()), language)
    if left_out:
        told = ", ".join(f"{count:,} {what}" for what, count in left_out.most_common())
        notes.append(f"attributes that texts do not answer are left out: {told}")
    known = {str(item["code"]) for item in items["attribute"]}
    categories, unknown = _families(items["family"], library, known, language)
    if unknown:
        notes.append(f"{len(unknown):,} attributes of families are not in the files: {listed(unknown)}")
    selects = {str(item["code"]) for item in items["attribute"] if item.get("type") in _SELECTS}
    bare = [code for code in library if code in selects and code not in members]
    doubts = {"are choices without options, and texts here; give the options' export as well": bare}
    return Imported("Akeneo's families", library, categories, notes, doubts)


def _attribute(item: Item, members: Sequence[Member], language: str | None) -> Attribute:
    code, kind = str(item["code"]), str(item.get("type"))
    labels = _labels(item)
    name = one_line(in_language(labels, language)) or readable(code)
    guidelines = item.get("guidelines")
    description = one_line(in_language(guidelines, language)) if isinstance(guidelines, Mapping) else ""
    common: dict[str, Any] = {
        "name": name,
        "id": code,
        "aliases": other_labels(labels, name),
        "description": description or None,
    }
    multiple = kind.endswith("multiselect") or kind.endswith("_collection")
    if kind in _SELECTS and members:
        return Attribute(**common, type="enum", values=unique_members(members), multiple=multiple)
    if kind == "pim_catalog_metric":
        unit = unit_of(str(item.get("metric_family") or ""), str(item.get("default_metric_unit") or ""))
        return Attribute(**common, type="number", unit=unit)
    if kind == "pim_catalog_number":
        return Attribute(**common, type="number")
    if kind == "pim_catalog_boolean":
        return Attribute(**common, type="boolean")
    return Attribute(**common, type="date" if kind == "pim_catalog_date" else "string", multiple=multiple)


def _members(options: Sequence[Item], language: str | None) -> dict[str, list[Member]]:
    members: dict[str, list[Member]] = defaultdict(list)
    for option in sorted(options, key=_order):
        code, labels = str(option["code"]), _labels(option)
        label = one_line(in_language(labels, language)) or code
        members[str(option["attribute"])].append(named_member(label, id=code, synonyms=other_labels(labels, label)))
    return members


def _order(option: Item) -> int:
    written = str(option.get("sort_order") or "0")
    return int(written) if written.isdigit() else 0


def _families(
    families: Sequence[Item], library: Mapping[str, Attribute], known: set[str], language: str | None
) -> tuple[list[SourceCategory], list[str]]:
    """Return the categories, and the attributes of families that no file defines."""
    if not families:
        return [SourceCategory(_EVERYTHING, (_EVERYTHING,), tuple(library))], []
    categories, unknown = [], dict[str, None]()
    for family in families:
        code, held = str(family["code"]), family.get("attributes") or ()
        codes = [each.strip() for each in (held.split(",") if isinstance(held, str) else map(str, held))]
        unknown |= dict.fromkeys(each for each in codes if each and each not in known)
        labels = _labels(family)
        name = one_line(in_language(labels, language)) or readable(code)
        aliases = tuple(dict.fromkeys([code, *other_labels(labels, name)]))
        handles = tuple(each for each in codes if each in library)
        categories.append(SourceCategory(code, (name,), handles, aliases=aliases, schema_id=code))
    return categories, list(unknown)


def _check_language(items: Mapping[str, Sequence[Item]], language: str | None) -> None:
    if language is None:
        return
    locales = list(dict.fromkeys(locale for each in items.values() for item in each for locale in _labels(item)))
    if not has_language(locales, language):
        raise UsageError(f"--language {language}: the files have no such labels, but {', '.join(locales) or 'none'}")


def _kind(item: Item) -> str:
    """Return "attribute", "option" or "family"; "" for anything else."""
    if not one_line(item.get("code")):
        return ""
    if str(item.get("type") or "").startswith(("pim_", "akeneo_")):
        return "attribute"
    if "attribute" in item:
        return "option"
    return "family" if isinstance(item.get("attributes"), list | str) else ""


def _labels(item: Item) -> dict[str, str]:
    labels = item.get("labels")
    if not isinstance(labels, Mapping):
        return {}
    return {str(locale): one_line(label) for locale, label in labels.items() if label}


def _from_row(row: Mapping[str, str]) -> dict[str, Any]:
    """Convert a row of an export to the form of the REST interface: labels in a mapping."""
    labels = {name.removeprefix(_LABEL): text for name, text in row.items() if name.startswith(_LABEL)}
    return {**row, "labels": labels}


SYMBOLS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    resources.files(__package__).joinpath("akeneo_units.yaml").read_text(encoding="utf-8")
)
"""Measurement family -> code -> spelling in texts."""


def unit_of(family: str, code: str) -> Unit | None:
    """Return the unit of a metric attribute; None without a code. Texts may have any unit convertible to it."""
    if not code:
        return None
    # A copy of a standard family, under a name of one's own, has its codes.
    codes = SYMBOLS.get(family) or next((each for each in SYMBOLS.values() if code in each), {})
    return Unit(want=codes.get(code, code.lower()))


_FIRST_CHOICE = "en"


def in_language(labels: Mapping[str, str], language: str | None) -> str:
    """Return the label of a locale ("de_DE"), else of its language, else in English, else the first; "" if none."""
    labels = {locale: label for locale, label in labels.items() if label}
    for wanted in filter(None, (language, _FIRST_CHOICE)):
        folded = _folded(wanted)
        for is_meant in (_folded, _tongue):
            for locale, label in labels.items():
                if is_meant(locale) == (folded if is_meant is _folded else _tongue(wanted)):
                    return label
    return next(iter(labels.values()), "")


def has_language(locales: Sequence[str], language: str) -> bool:
    """Return whether one of the locales has the language."""
    return _tongue(language) in map(_tongue, locales)


def other_labels(labels: Mapping[str, str], label: str) -> tuple[str, ...]:
    """Return the labels of other locales that differ from `label`, each once."""
    return tuple(dict.fromkeys(other for other in labels.values() if other and other != label))


def _folded(locale: str) -> str:
    return locale.replace("-", "_").casefold()


def _tongue(locale: str) -> str:
    return _folded(locale).split("_")[0]


SOURCE = SchemaSource(
    "akeneo", recognises, lambda documents, wishes: read(documents, wishes.language), frozenset(("--language",))
)

AKENEO_CODE = r"[A-Za-z0-9_]{1,255}"
AKENEO: Mapping[str, Rule] = {
    "text": Rule(max_length=255),
    "number": Rule("number", least=-1e15, most=1e15),
    "boolean": Rule("one_zero"),
    "select": Rule("option", pattern=AKENEO_CODE),
    "multiselect": Rule("option", max_items=10_000, joint=",", pattern=AKENEO_CODE),
    "date": Rule(pattern=r"\d{4}-\d\d-\d\d"),
}
"""Rules by the type of the attribute."""
AKENEO_RESERVED = frozenset(
    (
        *("id", "associationtypes", "categories", "categoryid", "completeness", "enabled", "family", "groups"),
        *("associations", "products", "scope", "treeid", "values", "category", "parent", "label", "entity_type"),
    )
)
"""Names that an attribute in Akeneo cannot have."""


def akeneo_code(id_: str | None, name: str) -> str:
    """Return the code of an attribute: its id if that is a code, else one made from its name; "" if neither works.

    A name that would lose letters does not work: "重さ (g)" would become `g`, which another attribute may be called.
    """
    is_code = id_ is not None and re.fullmatch(AKENEO_CODE, id_)
    code = (id_ or "") if is_code else slug(name, "_") if is_sluggable(name) else ""
    return "" if code.lower() in AKENEO_RESERVED else code


def _akeneo_columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    """Return the columns. Raises `UsageError` if the original has an attribute for each locale or channel, and
    `--columns` does not say which."""
    columns = []
    for each in asked:
        attribute = each.attribute
        wanted = wishes.columns.get(attribute.name)
        code = akeneo_code(attribute.id, attribute.name) if wanted is None else wanted
        if not code:
            continue
        if wanted is None:
            _check_scopes(header, code, attribute.name)
        unit = Extra(f"{code}-unit", _unit) if attribute.type == "number" and attribute.unit is not None else None
        columns.append(
            TargetColumn(
                *(each, code, _rule, find_place(header, code)),
                *(unit, None if unit is None else find_place(header, unit.name)),
            )
        )
    return columns


def _check_scopes(header: Sequence[str], code: str, name: str) -> None:
    """Raise `UsageError` if the file has the attribute for each locale (`brand-en_US`) or channel, and not for all."""
    # A code has no "-". A name that ends in "-unit" is the column beside a number.
    there = [each for each in header if each.startswith(f"{code}-") and not each.endswith("-unit")]
    if there and find_place(header, code) is None:
        raise UsageError(
            f"the attribute {name!r} has the columns {', '.join(there)} in the original: --columns '{name}={there[0]}' "
            "says which is filled in"
        )


def _rule(attribute: Attribute) -> Rule:
    if attribute.type == "enum":
        return AKENEO["multiselect" if attribute.multiple else "select"]
    return AKENEO.get(attribute.type, AKENEO["text"])


def _unit(items: Sequence[ExportedItem]) -> str | None:
    return akeneo_unit(items[0].unit)


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


SHOP = Shop(
    name="akeneo",
    columns=_akeneo_columns,
    is_original=lambda format, header, delimiter, wishes: (
        format == "csv" and delimiter == ";" and wishes.identifier in header
    ),
    id_columns=lambda wishes: (wishes.identifier,),
    new_file=NewFile(
        suffix=".csv",
        delimiter=";",
        id_column=None,
        family=AKENEO_CODE,
        note="Empty cells empty the attribute in Akeneo, too. Run on an export of Akeneo's to have other values kept.",
    ),
    max_bytes=512 * 1024 * 1024,
    options=frozenset(("--identifier",)),
)
