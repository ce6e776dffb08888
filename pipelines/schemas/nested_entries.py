"""Objects of a schema file: attributes within each other, which are asked for as what stands in them.

- name: size
  type: object
  description: without the packaging
  attributes:
  - {name: width, type: number, unit: cm}
  - {name: depth, type: number, unit: cm}

are the attributes `size.width` and `size.depth`. What an object is described as stands before the description of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from hpd_core import Attribute
from hpd_core.nesting import joined, nested

OBJECT = "object"
MAX_LEAVES = 1_000
"""Attributes of one object, with those of the objects in it."""
OBJECT_KEYS: Mapping[str, str] = {
    "name": "what it is called, and how the names of what stands in it begin",
    "type": "`object`",
    "description": "what it means, for the model to read; it stands before the description of what stands in it",
    "attributes": "what stands in it: a list of attributes, of which some may be objects again",
}
"""What an object may have."""


@dataclass(frozen=True)
class ObjectEntry:
    """An object as the file has it."""

    name: str
    description: str | None
    entries: tuple[Entry, ...]

    @cached_property
    def leaves(self) -> tuple[Attribute, ...]:
        """The attributes in it, by their whole names."""
        return tuple(self._within(leaf) for entry in self.entries for leaf in leaves_of(entry))

    def _within(self, leaf: Attribute) -> Attribute:
        place = (self.name, *leaf.place)
        description = with_note(self.description, leaf.description)
        return leaf.model_copy(update={"name": joined(place), "path": place, "description": description})


Entry: TypeAlias = Attribute | ObjectEntry


def leaves_of(entry: Entry) -> tuple[Attribute, ...]:
    """What is asked for."""
    return (entry,) if isinstance(entry, Attribute) else entry.leaves


def depth_of(entry: Entry) -> int:
    """How many objects within each other it is; 0 for an attribute."""
    return max(len(leaf.place) for leaf in leaves_of(entry)) - 1


def with_note(outer: str | None, inner: str | None) -> str | None:
    """An object's description and that of something in it as one."""
    return "; ".join(filter(None, (outer, inner))) or None


def bare(attribute: Attribute) -> Attribute:
    """The attribute as it stands in its object."""
    return attribute.model_copy(update={"name": attribute.path[-1], "path": ()}) if attribute.path else attribute


def as_written(attributes: Iterable[Attribute], plain: Callable[[Attribute], Any]) -> list[Any]:
    """The attributes as a file lists them, those of an object together.

    Args:
        plain: how one is written; it is called with the attribute as it is, under its whole name.
    """
    return _listed(nested((attribute.place, attribute) for attribute in attributes), plain)


def _listed(tree: Mapping[str, Any], plain: Callable[[Attribute], Any]) -> list[Any]:
    return [
        {"name": name, "type": OBJECT, "attributes": _listed(node, plain)} if isinstance(node, dict) else plain(node)
        for name, node in tree.items()
    ]
