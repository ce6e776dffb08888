"""Shopify's product taxonomy: the published JSON (`dist/en`), and the YAML that it is made from (`data`).

Categories name their attributes in full, those of their parents included. Attributes are closed lists of values; those
of the type "measurement" (`measurement_type`, `supported_units`) are numbers with units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute, Member, Unit
from pipelines.config.importing.imported import (
    NAMELESS,
    Imported,
    SourceCategory,
    listed,
    named_member,
    one_line,
    readable,
    unique_members,
)
from pipelines.config.importing.sources import Document
from pipelines.errors import UsageError

_GID = "gid://shopify/Taxonomy"
_LISTS = ("verticals", "attributes", "values")

Entry = Mapping[str, Any]


def recognises(document: Document) -> bool:
    """Return whether the file belongs to the taxonomy."""
    data = document.data
    if isinstance(data, Mapping):
        if "base_attributes" in data or "extended_attributes" in data or _is_vertical(data):
            return True
        return any(_is_vertical(each) or _has_gid(each) for key in _LISTS for each in _entries(data.get(key))[:1])
    return any(_is_category(each) or _is_value(each) for each in _entries(data)[:1])


def read(documents: Sequence[Document]) -> Imported:
    """Read the taxonomy in the files. Raises `UsageError` if they hold no category."""
    values, categories = _Values(), list[Entry]()
    definitions, versions = dict[str, Attribute](), dict[str, None]()
    for document in documents:
        values.add(_values_of(document.data))
    for document in documents:
        definitions |= dict(_definitions(document.data, values))
        categories += _categories_of(document.data)
        if isinstance(document.data, Mapping) and document.data.get("version"):
            versions[str(document.data["version"])] = None
    if not categories:
        raise UsageError(
            f"{listed([each.name for each in documents])}: attributes without categories; give the file with the "
            "categories as well (taxonomy.json, categories.json or categories/*.yml)"
        )
    library: dict[str, Attribute] = {}
    for named in (each for entry in categories for each in _listed(entry.get("attributes"))):
        handle = _handle(named)
        if handle not in library:
            library[handle] = _as_named(definitions.get(handle) or Attribute(name=readable(handle) or NAMELESS), named)
    unnamed = [handle for handle, each in library.items() if values.derived & {one.id for one in each.values or ()}]
    doubts = {
        "are not defined in the files, and are texts here": [each for each in library if each not in definitions],
        "have values without names in the files (values.yml has them), made from their ids here": unnamed,
    }
    source = " ".join(["Shopify's product taxonomy", *versions])
    return Imported(source, library, list(_tree(categories)), doubts=doubts)


def _as_named(attribute: Attribute, named: Any) -> Attribute:
    """Rename the attribute as a category of the published JSON does, since an extended one has its own name."""
    if not isinstance(named, Mapping):
        return attribute
    update = {
        "name": one_line(named.get("name")) or attribute.name,
        "id": str(named["id"]) if named.get("id") else attribute.id,
        "description": one_line(named.get("description")) or attribute.description,
    }
    return attribute.model_copy(update=update)


class _Values:
    """Members by their friendly ids: "color__black" is "Black"."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.derived: set[str | None] = set()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add values of values.yml, or of the published JSON."""
        for entry in entries:
            name = one_line(entry.get("name"))
            if not name:
                continue
            number = one_line(entry.get("id"))
            member = named_member(name, id=number if number.startswith("gid:") else f"{_GID}Value/{number}")
            for key in ("friendly_id", "handle"):
                if entry.get(key):
                    self._members.setdefault(str(entry[key]), member)

    def member(self, listed_value: Any) -> Member:
        """Return the member of a value that an attribute lists: a friendly id, or the whole value."""
        if isinstance(listed_value, Mapping):
            return named_member(one_line(listed_value.get("name")), id=one_line(listed_value.get("id")))
        friendly = str(listed_value)
        if friendly in self._members:
            return self._members[friendly]
        self.derived.add(friendly)
        return named_member(readable(friendly.split("__", 1)[-1]), id=friendly)


def _definitions(data: Any, values: _Values) -> Iterator[tuple[str, Attribute]]:
    """Yield (handle or friendly id, attribute), also for extended attributes."""
    if not isinstance(data, Mapping):
        return
    base: dict[str, Attribute] = {}
    for entry in [*_entries(data.get("base_attributes")), *_entries(data.get("attributes"))]:
        attribute = _attribute(entry, values)
        for key in ("friendly_id", "handle"):
            if entry.get(key):
                base[str(entry[key])] = attribute
        for extended in _entries(entry.get("extended_attributes")):
            handle = str(extended.get("handle"))
            name = one_line(extended.get("name")) or readable(handle)
            yield handle, attribute.model_copy(update={"name": name, "aliases": (handle,)})
    yield from base.items()
    for entry in _entries(data.get("extended_attributes")):
        source = base.get(str(entry.get("values_from")))
        own = _attribute(entry, values)
        if source is not None:
            own = source.model_copy(update=dict(own.model_dump(include={"name", "description", "aliases"})))
        for key in ("friendly_id", "handle"):
            if entry.get(key):
                yield str(entry[key]), own


def _attribute(entry: Entry, values: _Values) -> Attribute:
    number = one_line(entry.get("id"))
    handle = str(entry.get("friendly_id") or entry.get("handle") or number)
    common: dict[str, Any] = {
        "name": one_line(entry.get("name")) or readable(handle) or NAMELESS,
        "id": (number if number.startswith("gid:") else f"{_GID}Attribute/{number}") if number else None,
        "description": one_line(entry.get("description")) or None,
        # A shop's own columns are named by it.
        "aliases": (str(entry["handle"]),) if entry.get("handle") else (),
    }
    if units := [one_line(unit) for unit in _listed(entry.get("supported_units")) if one_line(unit)]:
        # The others are what a shop takes, too. A text may have any unit that can be made the first.
        return Attribute(**common, type="number", unit=Unit(want=units[0]))
    if entry.get("type") == "measurement":
        return Attribute(**common, type="number")
    members = unique_members(values.member(each) for each in _listed(entry.get("values")))
    return Attribute(**common, type="enum", values=members) if members else Attribute(**common)


def _tree(categories: Sequence[Entry]) -> Iterator[SourceCategory]:
    """Yield the categories with their paths, built from ids because names are not unique."""
    parents = {str(child): str(entry["id"]) for entry in categories for child in _child_ids(entry)}
    parents |= {str(entry["id"]): str(entry["parent_id"]) for entry in categories if entry.get("parent_id")}
    names = {str(entry["id"]): one_line(entry.get("name")) or str(entry["id"]) for entry in categories}
    for entry in categories:
        number = str(entry["id"])
        path, above, seen = [names[number]], parents.get(number), {number}
        while above in names and above not in seen:
            path.insert(0, names[above])
            seen.add(above)
            above = parents.get(above)
        schema_id = number if number.startswith("gid:") else f"{_GID}Category/{number}"
        yield SourceCategory(
            number, tuple(path), tuple(map(_handle, _listed(entry.get("attributes")))), schema_id=schema_id
        )


def _handle(named: Any) -> str:
    return one_line(named.get("handle") or named.get("id")) if isinstance(named, Mapping) else one_line(named)


def _child_ids(entry: Entry) -> Iterator[str]:
    for child in _listed(entry.get("children")):
        yield str(child.get("id")) if isinstance(child, Mapping) else str(child)


def _categories_of(data: Any) -> list[Entry]:
    if isinstance(data, Mapping):
        verticals = [data] if _is_vertical(data) else _entries(data.get("verticals"))
        return [entry for vertical in verticals for entry in _entries(vertical.get("categories")) if entry.get("id")]
    return [entry for entry in _entries(data) if _is_category(entry)]


def _values_of(data: Any) -> list[Entry]:
    if isinstance(data, Mapping):
        return _entries(data.get("values"))
    return [entry for entry in _entries(data) if _is_value(entry)]


def _listed(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []


def _entries(data: Any) -> list[Entry]:
    return [each for each in data if isinstance(each, Mapping)] if isinstance(data, list) else []


def _is_vertical(entry: Entry) -> bool:
    return "prefix" in entry and isinstance(entry.get("categories"), list)


def _is_category(entry: Entry) -> bool:
    return {"id", "name", "children", "attributes"} <= entry.keys()


def _is_value(entry: Entry) -> bool:
    return {"id", "name", "friendly_id"} <= entry.keys() and not _is_category(entry)


def _has_gid(entry: Entry) -> bool:
    return str(entry.get("id")).startswith(_GID)
