"""Values in nested objects, and their places: the keys that lead to them.

    {"brand": 1, "size": {"width": 2}}    is    ("brand",): 1, ("size", "width"): 2

The name of a place is its keys joined by dots, "size.width", as for fields of a JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Place = tuple[str, ...]
MAX_DEPTH = 16
"""Maximum depth of nested objects in a catalog's schemas and labels."""


def dotted(place: Iterable[str]) -> str:
    """Return the name of a place: its keys joined by dots."""
    return ".".join(place)


def nested(values: Iterable[tuple[Sequence[str], Any]]) -> dict[str, Any]:
    """Return the values in nested objects, which are created in the order of first use.

    Raise `ValueError` if a place occurs twice, or is both a value and an object.
    """
    found: dict[str, Any] = {}
    objects: dict[Place, dict[str, Any]] = {(): found}
    for keys, value in values:
        place = tuple(keys)
        for outer in (place[:depth] for depth in range(1, len(place))):
            if outer not in objects:
                objects[outer] = {}
                _put(objects, outer, objects[outer])
        _put(objects, place, value)
    return found


def _put(objects: Mapping[Place, dict[str, Any]], place: Place, value: Any) -> None:
    holder = objects[place[:-1]]
    if place[-1] in holder:
        raise ValueError(f"{dotted(place)!r} stands twice")
    holder[place[-1]] = value


def flattened(tree: Mapping[str, Any], outer: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the values of a tree with their places; every mapping in it is an object."""
    for key, value in tree.items():
        place = (*outer, key)
        if isinstance(value, Mapping):
            yield from flattened(value, place)
        else:
            yield place, value


def held_twice(places: Iterable[Place]) -> Iterator[tuple[Place, Place]]:
    """Yield each place that is both a value and an object, with a place within it."""
    known = dict.fromkeys(places)
    for place in known:
        for depth in range(1, len(place)):
            if place[:depth] in known:
                yield place[:depth], place
