"""Magento's (Adobe Commerce's) product attributes: answers of its REST interface, or a CSV file with the same names.

Attribute sets are the categories. `GET /V1/products/attributes` says nothing of sets; an answer of
`GET /V1/products/attribute-sets/<id>/attributes` belongs to the set whose id is the last number in the file's name, and
`.../attribute-sets/sets/list` has the sets' names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute, Member
from pipelines.errors import UsageError
from pipelines.schemas.importing.imported import (
    Imported,
    SourceCategory,
    listed,
    named_member,
    one_line,
    readable,
    unique_members,
)
from pipelines.schemas.importing.sources import Document, items_of

_CHOICES = ("select", "multiselect", "swatch_visual", "swatch_text")
_NUMBERS = ("price", "weight")
# Of the attributes that the shop itself brings along, these may stand in a text.
_USEFUL = frozenset({"weight", "country_of_manufacture", "color", "manufacturer"})
_NOT_ASKED = frozenset({"media_image", "gallery", "textarea", "texteditor", "pagebuilder", "hidden", "file", "image"})
_TRUTHS = ("1", "true", "yes")
_SET_IN_NAME = re.compile(r"(\d+)\D*$")
_EVERYTHING = "products"

Item = Mapping[str, Any]


def recognises(document: Document) -> bool:
    """Whether the file has attributes or attribute sets."""
    if document.data is not None:
        return any(
            {"attribute_code"} <= item.keys() or _is_set(item) for item in items_of(document.data, "attributes")[:1]
        )
    return "attribute_code" in document.header


def read(documents: Sequence[Document], name: str | None = None) -> Imported:
    """The attribute sets in the files.

    Args:
        documents: the files; one with attributes is needed.
        name: of the category where the attributes' set is not known.

    Raises:
        UsageError: no file has attributes.
    """
    set_names = {str(each["attribute_set_id"]): one_line(each["attribute_set_name"]) for each in _sets(documents)}
    library: dict[str, Attribute] = {}
    handles: dict[str, dict[str, None]] = {}
    left_out: Counter[str] = Counter()
    for document in documents:
        for item, named in _attributes(document):
            reason = _not_asked(item)
            code = str(item["attribute_code"])
            if reason:
                left_out[reason] += code not in library
                continue
            library.setdefault(code, _attribute(item))
            for category in named or [_set_of(document, set_names) or name or _EVERYTHING]:
                handles.setdefault(category, {})[code] = None
    if not library:
        raise UsageError(f"{listed([each.name for each in documents])}: no attribute that texts could answer")
    ids = {label: number for number, label in set_names.items()}
    categories = [
        SourceCategory(category, (category,), tuple(codes), schema_id=ids.get(category))
        for category, codes in handles.items()
    ]
    told = ", ".join(f"{count:,} {what}" for what, count in left_out.most_common())
    notes = [f"attributes that texts do not answer are left out: {told}"] if left_out else []
    numbers = [code for code, each in library.items() if each.type == "number"]
    doubts = {"are numbers, whose units Magento does not say; write your shop's": numbers}
    return Imported("Magento's attribute sets", library, categories, notes, doubts)


def _attribute(item: Item) -> Attribute:
    code, kind = str(item["attribute_code"]), str(item.get("frontend_input") or "text")
    labels = [one_line(item.get(key)) for key in ("default_frontend_label", "frontend_label", "label")]
    name = next(filter(None, labels), "") or readable(code)
    if kind in _CHOICES and (members := unique_members(_members(item))):
        return Attribute(name=name, id=code, type="enum", values=members, multiple=kind == "multiselect")
    if kind == "boolean":
        return Attribute(name=name, id=code, type="boolean")
    if kind in _NUMBERS or (item.get("backend_type") in ("decimal", "int") and kind == "text"):
        return Attribute(name=name, id=code, type="number")
    return Attribute(
        name=name, id=code, type="date" if kind in ("date", "datetime") else "string", multiple=kind == "multiselect"
    )


def _members(item: Item) -> Iterator[Member]:
    """The options: a list, of a CSV file as JSON or as texts between "|", with their values ("4=Red") or without."""
    options = item.get("options") or ()
    if isinstance(options, str):
        options = _written_options(options, str(item["attribute_code"]))
    for option in options if isinstance(options, list | tuple) else ():
        if not isinstance(option, Mapping):
            yield named_member(one_line(option))
        elif one_line(option.get("value")):  # the first one is empty, for a choice that is not made
            yield named_member(one_line(option.get("label")), id=str(option["value"]))


def _written_options(text: str, code: str) -> list[Any]:
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"attribute {code!r}: its options are no JSON: {error}") from error
        return found if isinstance(found, list) else []
    options = []
    for part in filter(None, map(str.strip, text.split("|"))):
        value, sign, label = part.partition("=")
        options.append({"value": value.strip(), "label": label.strip()} if sign else part)
    return options


def _not_asked(item: Item) -> str | None:
    """Why an attribute is not asked of a text."""
    if str(item.get("frontend_input")) in _NOT_ASKED:
        return "pictures, files and long texts"
    own = item.get("is_user_defined")
    is_own = own is None or own == "" or str(own).casefold() in _TRUTHS
    return None if is_own or str(item["attribute_code"]) in _USEFUL else "of the shop's own machinery"


def _attributes(document: Document) -> Iterator[tuple[Item, list[str]]]:
    """Every attribute, and the sets that the file itself names for it."""
    if document.data is None:
        for row in document.rows:
            sets = row.get("attribute_set_name") or row.get("attribute_set") or ""
            yield row, [each.strip() for each in sets.split("|") if each.strip()]
        return
    for holder in items_of(document.data):
        if isinstance(holder.get("attributes"), list):
            named = [one_line(holder["attribute_set_name"])] if holder.get("attribute_set_name") else []
            yield from (
                (item, named) for item in items_of(holder["attributes"]) if one_line(item.get("attribute_code"))
            )
        elif one_line(holder.get("attribute_code")):
            yield holder, []


def _sets(documents: Sequence[Document]) -> Iterator[Item]:
    for document in documents:
        if document.data is not None:
            yield from filter(_is_set, items_of(document.data))


def _is_set(item: Item) -> bool:
    return {"attribute_set_id", "attribute_set_name"} <= item.keys()


def _set_of(document: Document, set_names: Mapping[str, str]) -> str | None:
    match = _SET_IN_NAME.search(document.stem)
    return set_names.get(match[1]) if match else None
