"""JSON Schema: an object's properties are attributes, each object of its own is a category.

    enum, oneOf with const and title   an enum, the titles its labels, the constants its ids
    type, format: date                 string, number, boolean, date
    x-unit, unit                       the unit of a number; x-units, a list: the first is wanted, the others accepted
    array                              several values
    object                             flattened: dimensions.width is the attribute "dimensions.width"

Left out, by name: constants, lists of objects, and what refers to itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute, Member, Unit
from pipelines.errors import UsageError
from pipelines.schemas.importing.imported import (
    Imported,
    SourceCategory,
    listed,
    named_member,
    one_line,
    unique_members,
)
from pipelines.schemas.importing.json_references import BRANCHES, Node, References, items, nodes, type_of
from pipelines.schemas.importing.sources import Document

_DEFINITIONS = ("$defs", "definitions")
_WORDS = ("$schema", "properties", *_DEFINITIONS)
_LABELS = ("x-enumNames", "enumNames", "x-enum-varnames")
_DATES = ("date", "date-time")
_MAX_DEPTH = 20  # objects within objects
_MAX_ATTRIBUTES = 1_000  # a prompt has room for some dozens


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
        for title, node, followed in reader.objects(name):
            found = {f"{title}#{path}": attribute for path, attribute in reader.attributes(node, followed)}
            if found:
                library |= found
                schema_id = one_line(node.get("$id")) or None
                categories.append(SourceCategory(title, (title,), tuple(found), schema_id=schema_id))
        notes += reader.notes()
    if not categories:
        why = f": {'; '.join(notes)}" if notes else ""
        raise UsageError(f"{listed([each.name for each in documents])}: no property that can be asked for{why}")
    return Imported("JSON Schema", library, categories, notes)


class _Reader:
    """Reads one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._references = References(document.data, document.name)
        self._left_out: dict[str, list[str]] = {}
        self._count = 0

    def objects(self, name: str | None) -> Iterator[tuple[str, Node, frozenset[str]]]:
        """The objects that are categories, with the references that led to them: the root, the alternatives of the
        root, or else the definitions."""
        root: Node = self._document.data
        resolved, followed = self._references.resolved(root)
        if "properties" in resolved:
            yield name or one_line(resolved.get("title")) or self._document.stem, resolved, followed | {"#"}
            return
        branches = [("", node) for key in BRANCHES for node in nodes(resolved.get(key))]
        definitions = [(key, node) for word in _DEFINITIONS for key, node in items(root.get(word))]
        for key, node in branches or definitions:
            inner, followed = self._references.resolved(node)
            if "properties" in inner:
                title = one_line(inner.get("title")) or key or one_line(node.get("$ref")).split("/")[-1]
                own = frozenset(f"#/{word}/{key}" for word in _DEFINITIONS) if key else frozenset()
                yield title or self._document.stem, inner, followed | own

    def attributes(self, node: Node, above: frozenset[str], path: str = "") -> Iterator[tuple[str, Attribute]]:
        """The properties by their path, those of objects within as well. `above`: the references that led here."""
        for key, written in items(node.get("properties")):
            inner_path = f"{path}{key}"
            inner, followed = self._references.resolved(written)
            if "properties" in inner:
                if followed & above:
                    self._leave_out("it refers to itself", inner_path)
                elif path.count(".") >= _MAX_DEPTH:
                    self._leave_out("nested too deeply", inner_path)
                else:
                    yield from self.attributes(inner, above | followed, f"{inner_path}.")
            elif (attribute := self._attribute(inner, inner_path, one_line(written.get("title")))) is not None:
                self._count += 1
                if self._count > _MAX_ATTRIBUTES:
                    raise UsageError(
                        f"{self._document.name}: more than {_MAX_ATTRIBUTES:,} properties; give a part of it"
                    )
                yield inner_path, attribute

    def notes(self) -> list[str]:
        """What was left out, and why."""
        return [f"left out, {reason}: {listed(paths)}" for reason, paths in self._left_out.items()]

    def _attribute(self, node: Node, path: str, title: str) -> Attribute | None:
        """The attribute of a property that is no object. `title`: its own, not that of what it refers to."""
        item, multiple = node, type_of(node) == "array"
        if multiple:
            held = node.get("items")
            item, _ = self._references.resolved(held if isinstance(held, Mapping) else {})
        # Of a nested property the path says more.
        is_titled = bool(title) and "." not in path
        common: dict[str, Any] = {
            "name": title if is_titled else one_line(path),
            "id": path if is_titled and title != path else None,
            "description": one_line(node.get("description") or item.get("description")) or None,
            "multiple": multiple,
        }
        kind = type_of(item)
        reason = None
        if not common["name"]:
            reason = "without a name"
        elif "const" in item and "enum" not in item:
            reason = "a constant"
        elif members := unique_members(_members(item)):
            return Attribute(**common, type="enum", values=members)
        elif kind in ("object", "array") or "properties" in item:
            reason = "lists of objects or of lists, and objects without properties"
        if reason is not None:
            self._leave_out(reason, path)
            return None
        if kind in ("number", "integer"):
            return Attribute(**common, type="number", unit=_unit(node) or _unit(item))
        if item.get("format") in _DATES:
            return Attribute(**common, type="date")
        return Attribute(**common, type="boolean" if kind == "boolean" else "string")

    def _leave_out(self, reason: str, path: str) -> None:
        self._left_out.setdefault(reason, []).append(path)


def _members(node: Node) -> Iterator[Member]:
    """The values of an enum, or of alternatives that are each a constant."""
    names: list[Any] = next((node[key] for key in _LABELS if isinstance(node.get(key), list)), [])
    for value, name in itertools.zip_longest(_constants(node), names):
        if value is not None:
            yield _member(value, one_line(name))
    for key in BRANCHES:
        branches = [each for each in nodes(node.get(key)) if type_of(each) != "null"]
        if not all("const" in each or "enum" in each for each in branches):
            continue
        for branch in branches:
            if "const" in branch:
                yield _member(branch["const"], one_line(branch.get("title")), one_line(branch.get("description")))
            else:
                yield from (_member(constant, "") for constant in _constants(branch))


def _constants(node: Node) -> list[Any]:
    values = node.get("enum")
    return [value for value in values if value is not None] if isinstance(values, list) else []


def _member(value: Any, title: str, description: str = "") -> Member:
    """A constant under its title, if it has one: then the constant is the id."""
    text = str(value).lower() if isinstance(value, bool) else one_line(value)
    return named_member(title or text, id=text if title and title != text else None, description=description or None)


def _unit(node: Node) -> Unit | None:
    held = node.get("x-units") or node.get("x-unit") or node.get("unit")
    texts = [
        one_line(unit)
        for unit in (held if isinstance(held, list) else [held])
        if isinstance(unit, str) and unit.strip()
    ]
    return Unit(want=texts[0], accept=tuple(texts[1:])) if texts else None
