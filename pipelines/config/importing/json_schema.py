"""JSON Schema: an object's properties are attributes, and each top-level object is a category.

    enum, oneOf with const and title   an enum, the titles its labels, the constants its ids
    type, format: date                 string, number, boolean, date
    x-hpd-verbatim: true, exclusive    a string that stands in the text, letter for letter; in a place of its own
    x-unit, unit                       the unit of a number; x-units, a list: the first is wanted, the others accepted
    array, or one value or an array    several values
    several types                      numbers, if all are; else a text, by name
    object                             an object: its width is the attribute "dimensions.width"

A property keeps its own spelling as the id if its attribute has another name. One whose path reads as another's
("dimensions.width" itself as a key) has its JSON pointer as the id, "/dimensions.width". The same goes for constants.

Left out, and reported by name: constants, bytes, passwords, choices of several objects or lists, lists of objects, and
self-references.
"""

from __future__ import annotations

import itertools
import json
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from hpd_core import Attribute, Member, Unit
from hpd_core.json_schema.references import finder
from hpd_core.plain_data import MAX_DEPTH, dotted, held_twice
from pipelines.config.importing.imported import (
    Imported,
    SourceCategory,
    called_alike,
    listed,
    named_member,
    one_line,
    told_apart,
    unique_members,
)
from pipelines.config.importing.sources import Document
from pipelines.config.nested_entries import with_note
from pipelines.errors import UsageError

_DEFINITIONS = ("$defs", "definitions")
_WORDS = ("$schema", "properties", *_DEFINITIONS)
_Found: TypeAlias = list[tuple[tuple[str, ...], Attribute]]
"""Pairs of the keys that lead to an attribute, and the attribute."""
_CONDITIONS = ("then", "else", "anyOf", "oneOf", "dependentSchemas")
_LABELS = ("x-enumNames", "enumNames", "x-enum-varnames")
_MAX_ATTRIBUTES = 1_000  # a prompt has room for some dozens


def recognises(document: Document) -> bool:
    """Return whether the file is a JSON Schema."""
    data = document.data
    return isinstance(data, Mapping) and any(word in data for word in _WORDS) and "base_attributes" not in data


def read(documents: Sequence[Document], name: str | None = None) -> Imported:
    """Read the objects in the files.

    Args:
        documents: the files.
        name: name of the category if a file's root is its one object; it replaces the title.

    Raises:
        UsageError: a file has no object with a property that can be asked for.
    """
    library: dict[str, Attribute] = {}
    categories: list[SourceCategory] = []
    notes: list[str] = []
    alike: list[str] = []
    readers = list(map(_Reader, documents))
    objects = [(reader, each) for reader in readers for each in reader.objects(name)]
    titles = Counter(each.title for _, each in objects)
    identities = told_apart([(each.title if titles[each.title] == 1 else each.key, "") for _, each in objects])
    for identity, (reader, each) in zip(identities, objects, strict=True):
        found = {f"{identity}#{pointer[1:]}": attribute for pointer, attribute in reader.pointed_at(each)}
        if found:
            library |= found
            schema_id = one_line(each.node.get("$id")) or None
            categories.append(SourceCategory(identity, (each.title,), tuple(found), schema_id=schema_id))
            alike += called_alike(each.title, found.values(), "of")
    for reader in readers:
        notes += reader.notes()
    if alike:
        notes.append(f"called alike, and told apart by where they stand: {listed(alike)}")
    if not categories:
        why = f": {'; '.join(notes)}" if notes else ""
        raise UsageError(f"{listed([each.name for each in documents])}: no property that can be asked for{why}")
    return Imported("JSON Schema", library, categories, notes)


@dataclass(frozen=True, slots=True)
class _Object:
    """Object that is a category.

    Attributes:
        key: key that distinguishes it from another of the same title.
        followed: references that led to it.
    """

    title: str
    key: str
    node: Node
    followed: frozenset[str]


class _Reader:
    """Reader of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._references = FileReferences(document.data, document.name)
        self._left_out: dict[str, list[str]] = {}
        self._mixed: list[str] = []
        self._count = 0

    def objects(self, name: str | None) -> Iterator[_Object]:
        """Yield the objects that are categories: the root, the root's alternatives, or else the definitions."""
        root: Node = self._document.data
        resolved, followed = self._references.resolved(root)
        if "properties" in resolved:
            title = name or one_line(resolved.get("title")) or self._document.stem
            yield _Object(title, self._document.stem, resolved, followed | {"#"})
            return
        branches = [("", node) for key in BRANCHES for node in nodes(resolved.get(key))]
        definitions = [(key, node) for word in _DEFINITIONS for key, node in items(root.get(word))]
        for key, node in branches or definitions:
            inner, followed = self._references.resolved(node)
            if "properties" in inner:
                called = one_line(key) or one_line(node.get("$ref")).split("/")[-1]
                title = one_line(inner.get("title")) or called or self._document.stem
                own = frozenset(f"#/{word}/{key}" for word in _DEFINITIONS) if key else frozenset()
                yield _Object(title, called or self._document.stem, inner, followed | own)

    def pointed_at(self, each: _Object) -> Iterator[tuple[str, Attribute]]:
        """Yield (JSON pointer to the property, attribute) of an object; a pointer is "/size/width"."""
        found = _without_clashes(list(self._attributes(each.node, each.followed)))
        counts = Counter(".".join(keys) for keys, _ in found)
        for keys, attribute in found:
            pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)
            is_alone = counts[".".join(keys)] == 1
            yield pointer, attribute if is_alone else attribute.model_copy(update={"id": pointer})

    def _attributes(
        self, node: Node, above: frozenset[str], outer: tuple[str, ...] = (), note: str | None = None
    ) -> Iterator[tuple[tuple[str, ...], Attribute]]:
        """Yield (keys that lead to a property, attribute), also for nested objects.

        Args:
            above: references that led here.
            note: joined descriptions of the enclosing objects.
        """
        for word in _CONDITIONS:
            held = node.get(word)
            parts = [held, *(held.values() if isinstance(held, Mapping) else []), *nodes(held)]
            if any(isinstance(part, Mapping) and "properties" in part for part in parts):
                self._leave_out("asked for in some cases only", ".".join((*outer, word)))
        for key, written in items(node.get("properties")):
            keys = (*outer, key)
            inner_path = ".".join(keys)
            inner, followed = self._references.resolved(written)
            if "properties" in inner:
                if followed & above:
                    self._leave_out("it refers to itself", inner_path)
                elif len(outer) >= MAX_DEPTH:
                    self._leave_out(f"more than {MAX_DEPTH} objects within each other", inner_path)
                else:
                    own_note = with_note(note, one_line(inner.get("description")))
                    yield from self._attributes(inner, above | followed, keys, own_note)
                continue
            # Of a nested property the path says more.
            title = "" if outer else one_line(written.get("title"))
            if (attribute := self._attribute(inner, inner_path, title)) is not None:
                self._count += 1
                if self._count > _MAX_ATTRIBUTES:
                    raise UsageError(
                        f"{self._document.name}: more than {_MAX_ATTRIBUTES:,} properties; give a part of it"
                    )
                yield keys, attribute.model_copy(update=_nested(keys, note, attribute)) if outer else attribute

    def notes(self) -> list[str]:
        """Return notes on properties that were left out, with reasons, and on mixed types."""
        mixed = [f"of several types, texts here: {listed(self._mixed)}"] if self._mixed else []
        return [f"left out, {reason}: {listed(paths)}" for reason, paths in self._left_out.items()] + mixed

    def _attribute(self, node: Node, path: str, title: str) -> Attribute | None:
        """Return the attribute of a property that is not an object, or None. `title`: its own, not its reference's."""
        held = held_type(node, lambda part: self._references.resolved(part)[0])
        item = held.item
        called = title or one_line(path)
        common: dict[str, Any] = {
            "name": called,
            "id": path if called != path and path.strip() else None,
            "description": one_line(node.get("description") or item.get("description")) or None,
            "multiple": held.is_list,
            "type": held.type,
        }
        reason = None
        if not common["name"]:
            reason = "without a name"
        elif "const" in item and "enum" not in item:
            reason = "a constant"
        elif any(isinstance(constant, Mapping | list) for constant in _all_constants(item)):
            reason = "one of several objects or lists"
        elif members := unique_members(_members(item)):
            return Attribute(**common | {"type": "enum"}, values=members)
        elif held.type == "object":
            reason = "lists of objects or of lists, and objects without properties"
        elif held.type == "bytes":
            reason = "bytes and passwords"
        if reason is not None:
            self._leave_out(reason, path)
            return None
        if held.is_mixed:
            self._mixed.append(path)
        unit = (_unit(node) or _unit(item)) if held.type == "number" else None
        copied = node.get("x-hpd-verbatim") or item.get("x-hpd-verbatim")
        is_text = held.type == "string" and not held.is_list
        return Attribute(**common, unit=unit, verbatim=copied if is_text and copied in (True, "exclusive") else False)

    def _leave_out(self, reason: str, path: str) -> None:
        self._left_out.setdefault(reason, []).append(path)


def _nested(keys: Sequence[str], note: str | None, attribute: Attribute) -> dict[str, Any]:
    """Return the updates of an attribute in an object: joined description, and the path if it can be written."""
    described = {"description": with_note(note, attribute.description)}
    is_plain = all(key and one_line(key) == key for key in keys) and dotted(keys) == attribute.name
    return {**described, "path": tuple(keys)} if is_plain else described


def _without_clashes(found: _Found) -> _Found:
    """Clear the paths of attributes whose place clashes with another attribute's."""
    clashing = {place for _, place in held_twice(attribute.place for _, attribute in found)}
    return [
        (keys, attribute.model_copy(update={"path": ()}) if attribute.path in clashing else attribute)
        for keys, attribute in found
    ]


def _members(node: Node) -> Iterator[Member]:
    """Yield the members of an enum, or of alternatives that are all constants or enums."""
    names: list[Any] = next((node[key] for key in _LABELS if isinstance(node.get(key), list)), [])
    for value, name in itertools.zip_longest(_constants(node), names):
        # Where there are names, null has one as well.
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
                yield from (_member(constant, "") for constant in _constants(branch) if constant is not None)


def _constants(node: Node) -> list[Any]:
    values = node.get("enum")
    return values if isinstance(values, list) else []


def _all_constants(node: Node) -> Iterator[Any]:
    """Yield the constants of a node and of its alternatives."""
    yield from _constants(node)
    for branch in (each for key in BRANCHES for each in nodes(node.get(key))):
        yield branch.get("const")
        yield from _constants(branch)


def _member(value: Any, title: str, description: str = "") -> Member:
    """Return the member of a constant, labelled by its title or itself. If they differ, the constant is the id."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    label = title or one_line(text)
    return named_member(label, id=text if label != text else None, description=description or None)


def _unit(node: Node) -> Unit | None:
    held = node.get("x-units") or node.get("x-unit") or node.get("unit")
    texts = [
        one_line(unit)
        for unit in (held if isinstance(held, list) else [held])
        if isinstance(unit, str) and unit.strip()
    ]
    return Unit(want=texts[0], accept=tuple(texts[1:])) if texts else None


_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_model(source: str) -> bool:
    """Return whether a source is the name of a class, not a path."""
    return bool(_NAME.fullmatch(source))


def model_document(source: str) -> Document:
    """Return the JSON Schema of the class (a model, or any type that pydantic knows).

    Modules are also searched in the working folder. Importing a module runs it.

    Raises:
        UsageError: it cannot be imported, or is not a type that pydantic can describe.
    """
    if not is_model(source):
        raise UsageError(f"{source}: a pydantic model is named as module:Class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = pkgutil.resolve_name(source)
    except (Exception, SystemExit) as error:  # whatever a module of somebody else's does when it is imported
        raise UsageError(f"{source} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(found)
        schema = adapter.json_schema(schema_generator=_AttributeSchema)
    except Exception as error:
        raise UsageError(f"{source} has no JSON Schema: {error}") from error
    return Document(source, json.dumps(schema))


class _AttributeSchema(GenerateJsonSchema):
    """JSON Schema generator that keeps information on types that pydantic's default loses."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Return a number; pydantic's default is a number or a text, the same as for `float | str`."""
        return {"type": "number"}

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Add the names of the members if none of their values is a text: `SMALL = 1`."""
        found = super().enum_schema(schema)
        members = schema["members"]
        if "enum" in found and not any(isinstance(each.value, str) for each in members):
            found["x-enum-varnames"] = [each.name for each in members]
        return found


_DATES = ("date", "date-time")
BRANCHES = ("oneOf", "anyOf")
_MAX_DEPTH = 50  # of what is written within each other
_NO_TEXT = ("binary", "byte", "password")

JsonType = Literal["string", "number", "boolean", "date", "object", "bytes"]
Node = Mapping[str, Any]
Resolve = Callable[[Node], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class HeldType:
    """Type that a property holds.

    Attributes:
        type: type of the value, or of a list's items; also `object` for lists of lists.
        item: part of the schema that describes the value, or a list's item.
        is_list: whether it may be a list.
        is_mixed: whether it allows several types, so that it is read as a text.
    """

    type: JsonType
    item: Node
    is_list: bool = False
    is_mixed: bool = False


def held_type(node: Node, resolve: Resolve) -> HeldType:
    """Return the type of a property. `resolve`: function that resolves references."""
    branches = list(_alternatives(node, resolve))
    lists = [each for each in branches if _type(each) == "array"]
    if not lists:
        kind, is_mixed = _common(branches)
        return HeldType(kind, node, is_mixed=is_mixed)
    items = [resolve(each) for part in lists for each in _items(part)]
    held = [each for item in items for each in _alternatives(item, resolve)]
    kind, is_mixed = _common([*held, *(each for each in branches if each not in lists)])
    return HeldType(kind, items[0] if items else {}, is_list=True, is_mixed=is_mixed)


def _alternatives(node: Node, resolve: Resolve) -> Iterator[Node]:
    """Yield a schema for each type that the node allows, except null; the node itself if there is only one."""
    if isinstance(node.get("type"), list):
        yield from ({**node, "type": each} for each in node["type"] if each != "null")
        return
    branches = [resolve(each) for key in BRANCHES for each in nodes(node.get(key))]
    yield from (each for each in branches if _type(each) != "null") if branches else (node,)


def _items(node: Node) -> list[Node]:
    """Return the schemas of a list's items; of a tuple, one per position."""
    held = node.get("items")
    if isinstance(held, Mapping):
        return [held]
    return nodes(node.get("prefixItems")) or nodes(held)


def _type(node: Node) -> str | None:
    kind = node.get("type")
    return kind if isinstance(kind, str) else None


def _common(parts: list[Node]) -> tuple[JsonType, bool]:
    """Return (common type, whether mixed): a string if types differ, an object if any part is one."""
    found = {_single(part) for part in parts} or {"string"}
    if "object" in found:
        return "object", False
    return (found.pop(), False) if len(found) == 1 else ("string", True)


def _single(node: Node) -> JsonType:
    kind = _type(node)
    if kind in ("object", "array") or "properties" in node:
        return "object"
    if kind in ("number", "integer"):
        return "number"
    if kind == "boolean":
        return "boolean"
    if node.get("format") in _DATES:
        return "date"
    return "bytes" if node.get("format") in _NO_TEXT or "contentEncoding" in node else "string"


class FileReferences:
    """Resolver of the references of a document. `name` is for messages."""

    def __init__(self, root: Any, name: str) -> None:
        self._find, self._name = finder(root), name

    def resolved(self, node: Node) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the node merged into one mapping, in which its own keys win, and the references that were followed.

        Raises `UsageError` for a reference that leads out of the file, or nowhere.
        """
        followed: set[str] = set()
        return self._joined(node, followed, 0), frozenset(followed)

    def _joined(self, node: Node, followed: set[str], depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            return {}
        found: dict[str, Any] = {}
        reference = node.get("$ref")
        # Once each: what refers to itself ends.
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            found = self._joined(self._referred(reference), followed, depth + 1)
        for part in nodes(node.get("allOf")):
            found = _merged(found, self._joined(part, followed, depth + 1))
        own = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        for key in BRANCHES:
            branches = [each for each in nodes(node.get(key)) if type_of(each) != "null"]
            if len(branches) == 1 and "const" not in branches[0]:
                found = _merged(found, self._joined(branches[0], followed, depth + 1))
                del own[key]
        return _merged(found, own)

    def _referred(self, reference: str) -> Node:
        with suppress(LookupError):
            if isinstance(found := self._find(reference), Mapping):
                return found
        raise UsageError(f"{self._name}: $ref {reference!r} leads nowhere in this file; put it in there")


def _merged(node: Node, other: Node) -> dict[str, Any]:
    """Return both in one mapping, in which the other's keys win; their properties are joined."""
    properties = {**dict(items(node.get("properties"))), **dict(items(other.get("properties")))}
    return {**node, **other, **({"properties": properties} if properties else {})}


def type_of(node: Node) -> str | None:
    """Return the type of a node; of a list of types, the first that is not null."""
    kinds = node.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), "null")
    return kinds if isinstance(kinds, str) else None


def nodes(value: Any) -> list[Node]:
    """Return the mappings in a list; [] for any other value."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def items(value: Any) -> list[tuple[str, Node]]:
    """Return the entries of a mapping that are mappings themselves."""
    if not isinstance(value, Mapping):
        return []
    return [(str(key), each) for key, each in value.items() if isinstance(each, Mapping)]
