"""Labels nested in objects, as schema files nest attributes, flattened to the full name of each.

{"size": {"width": ["12"], "lid": null}}    is    {"size.width": ["12"], "size.lid.closure": null}

Without schemas the content decides: `{"Acme": 1}` and `{"Acme": [[0, 4]]}` are the accepted forms of one value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core import Attribute
from hpd_core.text.nesting import MAX_DEPTH, Place, dotted
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
