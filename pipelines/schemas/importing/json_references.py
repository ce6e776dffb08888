"""References in a JSON Schema, resolved: `$ref` within the file, `allOf`, and alternatives of a type or null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.errors import UsageError

BRANCHES = ("oneOf", "anyOf")
_MAX_DEPTH = 50  # of what is written within each other

Node = Mapping[str, Any]


class FileReferences:
    """Resolver of the references of a document. `name` is for messages."""

    def __init__(self, root: Any, name: str) -> None:
        self._root, self._name = root, name

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
            found |= self._joined(self._referred(reference), followed, depth + 1)
        for part in nodes(node.get("allOf")):
            inner = self._joined(part, followed, depth + 1)
            properties = {**dict(items(found.get("properties"))), **dict(items(inner.get("properties")))}
            found |= {**inner, "properties": properties} if properties else inner
        own = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        for key in BRANCHES:
            branches = [each for each in nodes(node.get(key)) if type_of(each) != "null"]
            if len(branches) == 1 and "const" not in branches[0]:
                found |= self._joined(branches[0], followed, depth + 1)
                del own[key]
        return {**found, **own}

    def _referred(self, reference: str) -> Node:
        found: Any = self._root
        if reference.startswith("#"):
            for part in filter(None, reference[1:].split("/")):
                key = part.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, Mapping) else None
            if isinstance(found, Mapping):
                return found
        raise UsageError(f"{self._name}: $ref {reference!r} leads nowhere in this file; put it in there")


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
