"""What gold calls an attribute, and what the schemas call it that the gold is for.

Two attributes that a source calls alike are told apart by a number in a schema ("Color", "color (2)"): the second has
the source's name as its id, and labels were written with that. So a name that no attribute has is looked for among ids,
then among aliases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from hpd_core import Attribute, CategorySchema
from hpd_core.nesting import joined
from pipelines.quality.gold_objects import KnownPlaces

T = TypeVar("T")


class GoldNames:
    """Names of attributes in gold, by the schemas that it is for; without any, all stay as they are."""

    def __init__(self, schemas: Sequence[Mapping[str, CategorySchema]]) -> None:
        self._schemas = schemas
        self._known: dict[tuple[str, str], str] = {}
        self._places: dict[str, KnownPlaces] = {}

    def asked(self, category: str, name: str) -> str:
        """The name of the attribute that is meant; the name itself where the schemas do not tell."""
        if (category, name) not in self._known:
            self._known[category, name] = _asked(name, self._attributes(category))
        return self._known[category, name]

    def places(self, category: str) -> KnownPlaces:
        """The names of a category's attributes, and in which objects they stand."""
        if category not in self._places:
            self._places[category] = KnownPlaces.of(self._attributes(category))
        return self._places[category]

    def _attributes(self, category: str) -> list[Attribute]:
        return [each for schemas in self._schemas if category in schemas for each in schemas[category].attributes]

    def by_asked(
        self, category: str, labels: Mapping[str, T], join: Callable[[T, T], T | None]
    ) -> tuple[dict[str, T], dict[str, list[str]]]:
        """A line's labels under the names that are asked for; and the attributes without one since it was labelled in
        several ways, with the names of these labels.

        Args:
            join: two labels of one attribute as one; None if they contradict each other.
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
    """Its aliases, and these where it stands in an object."""
    return {*attribute.aliases, *(joined((*attribute.path[:-1], alias)) for alias in attribute.aliases)}


def _asked(name: str, attributes: Sequence[Attribute]) -> str:
    if any(each.name == name for each in attributes):
        return name
    with_id = {each.name for each in attributes if each.id == name}
    aliased = {each.name for each in attributes if name in _other_names(each)}
    return next((found.pop() for found in (with_id, aliased) if len(found) == 1), name)
