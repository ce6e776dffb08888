"""Magento's (Adobe Commerce's) product attributes: answers of its REST interface, or a CSV file with the same names, or
in the form of its sample data, with lists by line breaks.

Attribute sets are the categories. `GET /V1/products/attributes` does not name sets. An answer of
`GET /V1/products/attribute-sets/<id>/attributes` belongs to the set whose id is the last number in the file's name, and
`.../attribute-sets/sets/list` has the sets' names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core import Attribute, Member
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
    """Return whether the file has attributes or attribute sets."""
    if document.data is not None:
        return any(
            {"attribute_code"} <= item.keys() or _is_set(item) for item in items_of(document.data, "attributes")[:1]
        )
    return "attribute_code" in document.header


def read(documents: Sequence[Document], name: str | None = None) -> Imported:
    """Read the attribute sets in the files.

    Args:
        documents: the files; one with attributes is required.
        name: name of the category for attributes whose set is unknown.

    Raises:
        UsageError: no file has attributes.
    """
    sets = _Sets(documents)
    library: dict[str, Attribute] = {}
    handles: dict[_Set, dict[str, None]] = {}
    left_out: Counter[str] = Counter()
    bare: dict[str, None] = {}
    for document in documents:
        for item, named in _attributes(document, sets):
            reason = _not_asked(item)
            code = str(item["attribute_code"])
            if reason:
                left_out[reason] += code not in library
                continue
            library.setdefault(code, attribute := _attribute(item))
            if str(item.get("frontend_input")) in _CHOICES and attribute.type == "string":
                bare[code] = None
            for held_by in named or [sets.of_file(document) or _Set(None, name or _EVERYTHING)]:
                handles.setdefault(held_by, {})[code] = None
    if not library:
        raise UsageError(f"{listed([each.name for each in documents])}: no attribute that texts could answer")
    categories = [
        SourceCategory(each.id or each.name, (each.name,), tuple(codes), schema_id=each.id)
        for each, codes in handles.items()
    ]
    told = ", ".join(f"{count:,} {what}" for what, count in left_out.most_common())
    notes = [f"attributes that texts do not answer are left out: {told}"] if left_out else []
    notes += sets.notes
    numbers = [code for code, each in library.items() if each.type == "number"]
    doubts = {"are numbers, whose units Magento does not say; write your shop's": numbers}
    if bare:
        doubts["are lists without options in these files, and read as texts"] = list(bare)
    return Imported("Magento's attribute sets", library, categories, notes, doubts)


@dataclass(frozen=True, slots=True)
class _Set:
    """Attribute set; `id` is None if the files do not give it."""

    id: str | None
    name: str


class _Sets:
    """Attribute sets that the files name with their ids.

    Attributes:
        notes: notes on sets that could not be told apart.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._by_id = {each.id: each for each in _listed_sets(documents)}
        self._unclear: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        unclear = listed(list(self._unclear))
        return [f"sets that are called alike and not told apart by an id: {unclear}"] if unclear else []

    def named(self, name: str) -> _Set:
        """Return the set of this name, without an id if no set or several have it."""
        found = [each for each in self._by_id.values() if each.name == name]
        if len(found) > 1:
            self._unclear[name] = None
        return found[0] if len(found) == 1 else _Set(None, name)

    def of_file(self, document: Document) -> _Set | None:
        """Return the set whose id is in the file's name, or None."""
        match = _SET_IN_NAME.search(document.stem)
        return self._by_id.get(match[1]) if match else None


def _attribute(item: Item) -> Attribute:
    code, kind = str(item["attribute_code"]), str(item.get("frontend_input") or "text")
    # Of several lines, the first is the default label, others those of store views.
    named = [item.get(key) for key in ("default_frontend_label", "frontend_label", "label")]
    labels = [one_line(str(label).strip().split("\n")[0]) for label in named if label is not None]
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
    """Yield the options: a list, or in a CSV file JSON or texts between "|", with their values ("4=Red") or without."""
    options = item.get("options") or item.get("option") or ()
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
    for part in filter(None, map(str.strip, re.split(r"[|\n]", text))):
        value, sign, label = part.partition("=")
        options.append({"value": value.strip(), "label": label.strip()} if sign else part)
    return options


def _not_asked(item: Item) -> str | None:
    """Return why an attribute is not asked for, or None."""
    if str(item.get("frontend_input")) in _NOT_ASKED:
        return "pictures, files and long texts"
    own = item.get("is_user_defined")
    is_own = own is None or own == "" or str(own).casefold() in _TRUTHS
    return None if is_own or str(item["attribute_code"]) in _USEFUL else "of the shop's own machinery"


def _attributes(document: Document, sets: _Sets) -> Iterator[tuple[Item, list[_Set]]]:
    """Yield every attribute, with the sets that the file itself names for it."""
    if document.data is None:
        for row in document.rows:
            names = row.get("attribute_set_name") or row.get("attribute_set") or ""
            yield row, [sets.named(one_line(each)) for each in re.split(r"[|\n]", names) if each.strip()]
        return
    for holder in items_of(document.data):
        if isinstance(holder.get("attributes"), list):
            name = one_line(holder.get("attribute_set_name"))
            named = [_as_set(holder)] if _is_set(holder) else [sets.named(name)] if name else []
            yield from (
                (item, named) for item in items_of(holder["attributes"]) if one_line(item.get("attribute_code"))
            )
        elif one_line(holder.get("attribute_code")):
            yield holder, []


def _listed_sets(documents: Sequence[Document]) -> Iterator[_Set]:
    for document in documents:
        if document.data is not None:
            yield from map(_as_set, filter(_is_set, items_of(document.data)))


def _as_set(item: Item) -> _Set:
    number = one_line(item["attribute_set_id"])
    return _Set(number or None, one_line(item["attribute_set_name"]) or number or _EVERYTHING)


def _is_set(item: Item) -> bool:
    return {"attribute_set_id", "attribute_set_name"} <= item.keys()


SOURCE = SchemaSource(
    "magento", recognises, lambda documents, wishes: read(documents, wishes.name), frozenset(("--name",))
)
