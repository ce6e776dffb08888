"""Places of values that must not share a place in a text, and the text that is left for the others.

    Kashi Golean Original Cereal       Sub brand (0.8)   Golean         has its place
                                       Brand (0.5)       Kashi Golean   finds none: is asked again, among "Kashi"
                                                                        and "Original Cereal"

Likelier values choose first. Each takes the first occurrence of its text that overlaps no rival. An occurrence that
ends inside a word ("1" in "16 oz") is taken only if there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from hpd_core.text.runs import bounds_of

Place = tuple[int, int, int]
"""Number of a line, and code-point offsets in it: start and end of the value."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Copied value: its attribute, its text and the model's probability."""

    name: str
    text: str
    probability: float


class ExclusivePlaces:
    """Places of values in the lines of one record. Every round gives places to values that have none.

    Attributes:
        places: place of each attribute's value.
    """

    def __init__(self, lines: Sequence[str], rivals: Mapping[str, frozenset[str]]) -> None:
        """Take `lines` of `field_lines`, and `rivals` of `CategorySchema.rivals`."""
        self._lines, self._rivals = lines, rivals
        self._bounds = cache(bounds_of)  # most lines are never asked for
        self._contested: list[str] = []
        self.places: dict[str, Place] = {}

    def settle(self, values: Iterable[Copied]) -> list[str]:
        """Give the values of a round their places, the likeliest first, ties by name.

        A text that does not occur needs no place.

        Returns:
            The attributes whose values found none, sorted: fewer than in the round before.
        """
        likeliest_first = sorted(values, key=lambda each: (-each.probability, each.name))
        contested = sorted([value.name for value in likeliest_first if not self._settle(value)])
        # Where a tokenizer changes texts, a value may be read again and again as one that stands where it must not.
        self._contested = [] if contested == self._contested else contested
        return self._contested

    def _settle(self, value: Copied) -> bool:
        """Give a value its place. Return False if all places of its text are taken."""
        taken, stands = self._taken(value.name), False
        for place in self._occurrences(value.text):
            if not any(_touch(place, other) for other in taken):
                self.places[value.name] = place
                return True
            stands = True
        return not stands

    def left_for(self, name: str) -> tuple[str, ...]:
        """Return the pieces of lines not taken by rivals; as those of `lines_of`, each starts where a run may."""
        taken = sorted(self._taken(name))
        found = (piece for number in range(len(self._lines)) for piece in self._around(number, taken))
        return tuple(dict.fromkeys(piece for piece in found if piece))

    def _taken(self, name: str) -> list[Place]:
        rivals = self._rivals.get(name, frozenset())
        return [place for other, place in self.places.items() if other in rivals]

    def _occurrences(self, text: str) -> Iterator[Place]:
        """Yield the places of `text`, those that end with a word first."""
        for is_whole in (True, False):
            for number, line in enumerate(self._lines):
                begin = line.find(text)
                while begin >= 0:
                    (starts, stops), stop = self._bounds(line), begin + len(text)
                    if begin in starts and (stop in stops) == is_whole:
                        yield number, begin, stop
                    begin = line.find(text, begin + 1)

    def _around(self, number: int, taken: Sequence[Place]) -> Iterator[str]:
        line, begin = self._lines[number], 0
        for _, start, stop in (place for place in taken if place[0] == number):
            yield line[begin : max(begin, start)].strip()
            starts, _ = self._bounds(line)
            # The rest of a word in which a value ends is not the beginning of a run.
            begin = max(begin, min((each for each in starts if each >= stop), default=len(line)))
        yield line[begin:].strip()


def _touch(one: Place, other: Place) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
