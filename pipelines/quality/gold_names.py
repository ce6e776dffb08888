"""Mapping of gold's attribute names to the names in its schemas.

A schema numbers attributes that a source names alike ("Color", "color (2)"). The second has the source's name as its
id, and labels use that. So a name without an attribute is looked up among ids, then among aliases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from hpd_core import Attribute, CategorySchema
from hpd_core.text.nesting import dotted
from pipelines.quality.gold_objects import KnownPlaces

T = TypeVar("T")


class GoldNames:
    """Names of attributes in gold, mapped to its schemas; without schemas, names stay unchanged."""

    def __init__(self, schemas: Sequence[Mapping[str, CategorySchema]]) -> None:
        self._schemas = schemas
        self._known: dict[tuple[str, str], str] = {}
        self._places: dict[str, KnownPlaces] = {}

    def asked(self, category: str, name: str) -> str:
        """Return the name of the attribute meant; the name itself if the schemas do not tell."""
        if (category, name) not in self._known:
            self._known[category, name] = _asked(name, self._attributes(category))
        return self._known[category, name]

    def places(self, category: str) -> KnownPlaces:
        """Return the names of a category's attributes, and the objects that hold them."""
        if category not in self._places:
            self._places[category] = KnownPlaces.of(self._attributes(category))
        return self._places[category]

    def _attributes(self, category: str) -> list[Attribute]:
        return [each for schemas in self._schemas if category in schemas for each in schemas[category].attributes]

    def by_asked(
        self, category: str, labels: Mapping[str, T], join: Callable[[T, T], T | None]
    ) -> tuple[dict[str, T], dict[str, list[str]]]:
        """Map a line's labels to the schemas' names.

        Returns these labels, and the attributes with contradictory labels, each with the names of these labels.

        Args:
            join: merges two labels of one attribute; None if they contradict each other.
        """
        names: defaultdict[str, list[str]] = defaultdict(list)
        for name in labels:
            names[self.asked(category, name)].append(name)
        as_one = {asked: _joined([labels[name] for name in written], join) for asked, written in names.items()}
        found = {asked: label for asked, label in as_one.items() if label is not None}
        return found, {asked: written for asked, written in names.items() if asked not in found}


def _joined(labels: Sequence[T], join: Callable[[T, T], T | None]) -> T | None:
    found: T | None = labels[0]
    for label in labels[1:]:
        found = None if found is None else join(found, label)
    return found


def _other_names(attribute: Attribute) -> set[str]:
    """Return its aliases; for an attribute in an object also the aliases with the object's path."""
    return {*attribute.aliases, *(dotted((*attribute.path[:-1], alias)) for alias in attribute.aliases)}


def _asked(name: str, attributes: Sequence[Attribute]) -> str:
    if any(each.name == name for each in attributes):
        return name
    with_id = {each.name for each in attributes if each.id == name}
    aliased = {each.name for each in attributes if name in _other_names(each)}
    return next((found.pop() for found in (with_id, aliased) if len(found) == 1), name)
