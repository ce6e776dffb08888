"""Attribute type of a JSON Schema property, also if it allows several types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.schemas.importing.json_references import BRANCHES, Node, nodes

_DATES = ("date", "date-time")
_NO_TEXT = ("binary", "byte", "password")

JsonType = Literal["string", "number", "boolean", "date", "object", "bytes"]
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
