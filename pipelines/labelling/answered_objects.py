"""Answers nested in objects, as schema files nest attributes, flattened to the full name of each.

{"size": {"width": 12, "lid": null}}    is    {"size.width": 12, "size.lid.closure": null}

A teacher is asked for full names, but many answer with objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from hpd_core import Attribute
from hpd_core.text.nesting import dotted
from pipelines.labelling.json_in_text import Object


class _Pair(NamedTuple):
    name: str
    value: Any
    is_disputed: bool


class AnsweredObjects:
    """The objects of a category's schema."""

    def __init__(self, attributes: Iterable[Attribute], spelling: Callable[[str], str]) -> None:
        """Collect the objects. `spelling`: maps keys that count as equal to the same text."""
        self._spelling = spelling
        self._inside: defaultdict[str, list[str]] = defaultdict(list)
        for attribute in attributes:
            for depth in range(1, len(attribute.path)):
                self._inside[spelling(dotted(attribute.path[:depth]))].append(attribute.name)

    def by_name(self, answer: Object) -> Object:
        """Flatten the answer's objects to full names; unchanged if the schema has no objects."""
        if not self._inside:
            return answer
        pairs = list(self._pairs(answer, "", is_disputed=False))
        found = Object([(pair.name, pair.value) for pair in pairs])
        found.num_doubled += _num_doubled(answer)
        found.disputed |= {pair.name for pair in pairs if pair.is_disputed}
        return found

    def _pairs(self, answer: Object, outer: str, *, is_disputed: bool) -> Iterator[_Pair]:
        for key, value in answer.items():
            name = outer + key
            inside = self._inside.get(self._spelling(name))
            is_open = is_disputed or key in answer.disputed
            if inside is not None and isinstance(value, Object):
                yield from self._pairs(value, f"{name}.", is_disputed=is_open)
            elif inside is not None and value is None:
                yield from (_Pair(each, None, is_open) for each in inside)
            else:
                yield _Pair(name, value, is_open)


def _num_doubled(value: Any) -> int:
    return value.num_doubled + sum(map(_num_doubled, value.values())) if isinstance(value, Object) else 0
