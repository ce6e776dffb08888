"""Attribute type of a JSON Schema property, also if it allows several types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from hpd_core.json_schema.references import finder
from pipelines.errors import UsageError

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
