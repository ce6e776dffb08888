"""JSON Schema: an object's properties are attributes, each object of its own is a category.

    enum, oneOf with const and title   an enum, the titles its labels, the constants its ids
    type, format: date                 string, number, boolean, date
    x-unit, unit                       the unit of a number; x-units, a list: the first is wanted, the others accepted
    array                              several values
    object                             flattened: dimensions.width is the attribute "dimensions.width"

Left out, by name: constants, lists of objects, and what refers to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpd_core import Attribute, Member, Unit
from pipelines.errors import UsageError
from pipelines.schemas.importing.imported import Imported, SourceCategory, listed, one_line, unique_members
from pipelines.schemas.importing.sources import Document

_TYPES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_WORDS = ("$schema", "properties", "$defs", "definitions")
_BRANCHES = ("oneOf", "anyOf")
_MAX_DEPTH = 20  # objects within objects, and references to references
_DATES = ("date", "date-time")

Node = Mapping[str, Any]


def recognises(document: Document) -> bool:
    """Whether the file is a JSON Schema."""
    data = document.data
    return isinstance(data, Mapping) and any(word in data for word in _WORDS) and "base_attributes" not in data


def read(documents: Sequence[Document], name: str | None = None) -> Imported:
    """The objects in the files.

    Args:
        documents: the files.
        name: of the category, where a file has one object that has no title.

    Raises:
        UsageError: a file has no object with a property that can be asked for.
    """
    library: dict[str, Attribute] = {}
    categories: list[SourceCategory] = []
    notes: list[str] = []
    for document in documents:
        reader = _Reader(document)
        for title, node in reader.objects(name):
            found = dict(reader.attributes(node))
            if not found:
                continue
            handles = {path: f"{title}#{path}" for path in found}
            library |= {handles[path]: attribute for path, attribute in found.items()}
            categories.append(SourceCategory(title, (title,), tuple(handles.values()), schema_id=node.get("$id")))
        notes += reader.notes()
    if not categories:
        why = f": {'; '.join(notes)}" if notes else ""
        raise UsageError(f"{listed([each.name for each in documents])}: no property that can be asked for{why}")
    return Imported("JSON Schema", library, categories, notes)


@dataclass(slots=True)
class _Reader:
    document: Document
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def objects(self, name: str | None) -> Iterator[tuple[str, Node]]:
        """The objects that are categories: the root, the alternatives of the root, or else the definitions."""
        root: Node = self.document.data
        resolved = self._resolved(root)
        if "properties" in resolved:
            yield name or one_line(resolved.get("title") or root.get("title")) or self.document.stem, resolved
            return
        branches = [node for key in _BRANCHES for node in _nodes(resolved.get(key))]
        definitions = [(key, node) for word in ("$defs", "definitions") for key, node in _items(root.get(word))]
        for key, node in [("", each) for each in branches] or definitions:
            inner = self._resolved(node)
            if "properties" in inner:
                yield one_line(inner.get("title")) or key or str(node.get("$ref", "")).split("/")[-1], inner

    def attributes(self, node: Node, path: str = "", depth: int = 0) -> Iterator[tuple[str, Attribute]]:
        """The properties by their path, those of objects within as well."""
        for key, written in _items(node.get("properties")):
            inner_path = f"{path}{key}"
            inner = self._resolved(written)
            if "properties" in inner:
                if depth >= _MAX_DEPTH:
                    self._leave_out("nested too deeply", inner_path)
                else:
                    yield from self.attributes(inner, f"{inner_path}.", depth + 1)
            elif (attribute := self._attribute(inner, inner_path, one_line(written.get("title")))) is not None:
                yield inner_path, attribute

    def notes(self) -> list[str]:
        """What was left out, and why."""
        return [f"left out, {reason}: {listed(paths)}" for reason, paths in self.left_out.items()]

    def _attribute(self, node: Node, path: str, title: str) -> Attribute | None:
        """The attribute of a property that is no object. `title`: its own, not that of what it refers to."""
        item, multiple = node, False
        if _type(node) == "array":
            item, multiple = self._resolved(_nodes([node.get("items")])[0] if _nodes([node.get("items")]) else {}), True
        description = one_line(node.get("description") or item.get("description"))
        common: dict[str, Any] = {
            "name": title if title and "." not in path else path,
            "id": path if title and title != path and "." not in path else None,
            "description": description or None,
            "multiple": multiple,
        }
        members = unique_members(_members(item))
        if members and not ("const" in item and "enum" not in item):
            return Attribute(**common, type="enum", values=members)
        if "const" in item:
            self._leave_out("a constant", path)
            return None
        kind = _type(item)
        if kind in ("object", "array") or "properties" in item:
            self._leave_out("lists of objects or of lists, and objects without properties", path)
            return None
        if kind == "number" or kind == "integer":
            return Attribute(**common, type="number", unit=_unit(node) or _unit(item))
        if item.get("format") in _DATES:
            return Attribute(**common, type="date")
        return Attribute(**common, type="boolean" if kind == "boolean" else "string")

    def _leave_out(self, reason: str, path: str) -> None:
        self.left_out.setdefault(reason, []).append(path)

    def _resolved(self, node: Node, depth: int = 0) -> dict[str, Any]:
        """The node without references, `allOf`, and the null that a value may be instead; what it says itself wins."""
        if depth > _MAX_DEPTH:
            return {}
        found: dict[str, Any] = {}
        if isinstance(reference := node.get("$ref"), str):
            found |= self._resolved(self._referred(reference), depth + 1)
        for part in _nodes(node.get("allOf")):
            inner = self._resolved(part, depth + 1)
            properties = {**dict(_items(found.get("properties"))), **dict(_items(inner.get("properties")))}
            found |= {**inner, "properties": properties} if properties else inner
        for key in _BRANCHES:
            branches = [each for each in _nodes(node.get(key)) if _type(each) != "null"]
            if len(branches) == 1 and "const" not in branches[0]:
                found |= self._resolved(branches[0], depth + 1)
                node = {name: value for name, value in node.items() if name != key}
        return {**found, **{key: value for key, value in node.items() if key not in ("$ref", "allOf")}}

    def _referred(self, reference: str) -> Node:
        """What a reference within the file leads to. Raises `UsageError` for any other."""
        found: Any = self.document.data
        if reference.startswith("#"):
            for part in filter(None, reference[1:].split("/")):
                key = part.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, Mapping) else None
            if isinstance(found, Mapping):
                return found
        raise UsageError(f"{self.document.name}: $ref {reference!r} leads nowhere in this file; put it in there")


def _members(node: Node) -> Iterator[Member]:
    """The values of an enum, or of alternatives that are each a constant."""
    names = node.get("x-enumNames") or node.get("enumNames") or node.get("x-enum-varnames") or ()
    values = [value for value in node.get("enum") or () if value is not None]
    for number, value in enumerate(values):
        label = one_line(names[number]) if number < len(names) else ""
        text = _text(value)
        yield Member(label=label or text, id=text if label and label != text else None)
    for key in _BRANCHES:
        branches = [each for each in _nodes(node.get(key)) if _type(each) != "null"]
        if not branches or not all("const" in each or "enum" in each for each in branches):
            continue
        for branch in branches:
            constants = [branch["const"]] if "const" in branch else branch["enum"]
            for constant in constants:
                text, title = _text(constant), one_line(branch.get("title")) if "const" in branch else ""
                description = one_line(branch.get("description")) or None
                yield Member(label=title or text, id=text if title and title != text else None, description=description)


def _unit(node: Node) -> Unit | None:
    units = node.get("x-units") or [node.get("x-unit") or node.get("unit")]
    texts = [one_line(unit) for unit in (units if isinstance(units, list) else [units]) if unit]
    return Unit(want=texts[0], accept=tuple(texts[1:])) if texts else None


def _type(node: Node) -> str | None:
    """The type, where null is one of two, the other."""
    kinds = node.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), "null")
    return kinds if isinstance(kinds, str) else None


def _text(value: Any) -> str:
    """A constant as text; truth as JSON has it."""
    return str(value).lower() if isinstance(value, bool) else one_line(value)


def _nodes(value: Any) -> list[Node]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def _items(value: Any) -> list[tuple[str, Node]]:
    return (
        [(str(key), each) for key, each in value.items() if isinstance(each, Mapping)]
        if isinstance(value, Mapping)
        else []
    )
