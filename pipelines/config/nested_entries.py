"""Objects of a schema file: nested attributes, of which only the leaves are asked for.

- name: size
  type: object
  description: without the packaging
  attributes:
  - {name: width, type: number, unit: cm}
  - {name: depth, type: number, unit: cm}

are the attributes `size.width` and `size.depth`. The object's description is put before the description of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from hpd_core import Attribute
from hpd_core.plain_data import dotted, nested

OBJECT = "object"
MAX_LEAVES = 1_000
"""Largest number of attributes of one object, including those of nested objects."""
OBJECT_KEYS: Mapping[str, str] = {
    "name": "what it is called, and how the names of what stands in it begin",
    "type": "`object`",
    "description": "what it means, for the model to read; it stands before the description of what stands in it",
    "attributes": "what stands in it: a list of attributes, of which some may be objects again",
}
"""Keys of an object, with their help texts."""


@dataclass(frozen=True)
class ObjectEntry:
    """Object as written in the file."""

    name: str
    description: str | None
    entries: tuple[Entry, ...]

    @cached_property
    def leaves(self) -> tuple[Attribute, ...]:
        """Attributes in it, with their whole names."""
        return tuple(self._within(leaf) for entry in self.entries for leaf in leaves_of(entry))

    def _within(self, leaf: Attribute) -> Attribute:
        place = (self.name, *leaf.place)
        description = with_note(self.description, leaf.description)
        return leaf.model_copy(update={"name": dotted(place), "path": place, "description": description})


Entry: TypeAlias = Attribute | ObjectEntry


def leaves_of(entry: Entry) -> tuple[Attribute, ...]:
    """Return the attributes that are asked for."""
    return (entry,) if isinstance(entry, Attribute) else entry.leaves


def depth_of(entry: Entry) -> int:
    """Return the number of objects nested in each other; 0 for an attribute."""
    return max(len(leaf.place) for leaf in leaves_of(entry)) - 1


def with_note(outer: str | None, inner: str | None) -> str | None:
    """Join an object's description with that of an entry in it; None if both are empty."""
    return "; ".join(filter(None, (outer, inner))) or None


def bare(attribute: Attribute) -> Attribute:
    """Return the attribute as written in its object: with its own name and without a path."""
    return attribute.model_copy(update={"name": attribute.path[-1], "path": ()}) if attribute.path else attribute


def as_written(attributes: Iterable[Attribute], plain: Callable[[Attribute], Any]) -> list[Any]:
    """Return the attributes as a file lists them, grouped by object.

    Args:
        plain: function that writes one attribute; it gets the attribute with its whole name.
    """
    return _listed(nested((attribute.place, attribute) for attribute in attributes), plain)


def _listed(tree: Mapping[str, Any], plain: Callable[[Attribute], Any]) -> list[Any]:
    return [
        {"name": name, "type": OBJECT, "attributes": _listed(node, plain)} if isinstance(node, dict) else plain(node)
        for name, node in tree.items()
    ]
