"""Labels nested in objects, as schema files nest attributes, flattened to the full name of each.

{"size": {"width": ["12"], "lid": null}}    is    {"size.width": ["12"], "size.lid.closure": null}

Without schemas the content decides: `{"Acme": 1}` and `{"Acme": [[0, 4]]}` are the accepted forms of one value.

Mapping of gold's attribute names to the names in its schemas.

A schema numbers attributes that a source names alike ("Color", "color (2)"). The second has the source's name as its
id, and labels use that. So a name without an attribute is looked up among ids, then among aliases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hpd_core import Attribute, CategorySchema
from hpd_core.plain_data import MAX_DEPTH, Place, dotted
from hpd_core.types import is_encodable
from pipelines.errors import UsageError

_SCORE_KEYS = {"pid", "score"}


@dataclass(frozen=True, slots=True)
class KnownPlaces:
    """Attribute names and objects of a category's schemas.

    Attributes:
        names: attribute names.
        objects: names of the attributes in each object.
    """

    names: frozenset[str]
    objects: Mapping[Place, Sequence[str]]

    @classmethod
    def of(cls, attributes: Iterable[Attribute]) -> KnownPlaces:
        """Collect the places of some attributes."""
        names: dict[str, None] = {}
        objects: defaultdict[Place, list[str]] = defaultdict(list)
        for attribute in attributes:
            if attribute.name not in names:
                names[attribute.name] = None
                for depth in range(1, len(attribute.path)):
                    objects[attribute.path[:depth]].append(attribute.name)
        return cls(frozenset(names), objects)


def by_place(
    values: Mapping[str, Any], known: KnownPlaces, is_score: Callable[[Any], bool], place: str
) -> dict[Place, Any]:
    """Return the labels of a line by their places, each under its attribute's full name; no two are alike.

    Args:
        values: labels as in the line.
        is_score: whether a value is allowed after an accepted form.
        place: place of the line, for messages.

    Raises:
        UsageError: a name is blank or labelled twice, or objects are too deep.
    """
    found: dict[Place, Any] = {}
    names: set[str] = set()
    for where, label in _flat(values, known, is_score, place, ()):
        if (name := dotted(where)) in names:
            raise UsageError(f"{place}: {name!r} is labelled twice, in an object and by its whole name")
        names.add(name)
        found[where] = label
    return found


def refuse_blank(name: str, place: str) -> None:
    """Raise `UsageError` for an empty or white-space name: no schema has one, and it would be invisible."""
    if not name.strip():
        raise UsageError(f"{place}: the name {name!r} is blank; write what is meant, or leave it out")


def _flat(
    values: Mapping[str, Any], known: KnownPlaces, is_score: Callable[[Any], bool], place: str, outer: Place
) -> Iterator[tuple[Place, Any]]:
    if len(outer) > MAX_DEPTH:
        raise UsageError(f"{place}: more than {MAX_DEPTH} objects within each other")
    for key, label in values.items():
        here = (*outer, key)
        if not is_encodable(key):
            raise UsageError(f"{place} > {dotted(here)!r}: the name holds half a surrogate pair, which is no text")
        refuse_blank(key, f"{place} > {dotted(here)!r}")
        if label is None and here in known.objects:
            yield from (((name,), None) for name in known.objects[here])
        elif isinstance(label, dict) and _is_object(here, label, known, is_score):
            yield from _flat(label, known, is_score, place, here)
        else:
            yield here, label


def _is_object(here: Place, label: Mapping[str, Any], known: KnownPlaces, is_score: Callable[[Any], bool]) -> bool:
    """Return whether a label is an object of labels, and not the accepted forms of one value."""
    if not label or dotted(here) in known.names:
        return False
    if here in known.objects:
        return True
    may_be_labels = all(each is None or isinstance(each, list | dict) for each in label.values())
    return may_be_labels and not all(_is_plain_score(each, is_score) for each in label.values())


def _is_plain_score(each: Any, is_score: Callable[[Any], bool]) -> bool:
    return is_score(each) and not (isinstance(each, dict) and each and not _SCORE_KEYS & each.keys())


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
