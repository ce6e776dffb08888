"""Values that must not stand in the same place of a text: which has which place, and what is left for the others.

    Kashi Golean Original Cereal       Sub brand (0.8)   Golean         has its place
                                       Brand (0.5)       Kashi Golean   finds none: is asked again, of "Kashi" and
                                                                        "Original Cereal"

The likelier value is the first to choose, and chooses the first place in which its text stands and no rival does: one
that ends inside of a word ("1" in "16 oz") only where there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from hpd_core.text.runs import bounds_of

Place = tuple[int, int, int]
"""The number of a line, and code points in it: where the value begins, and where it has ended."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A value that was copied: of which attribute, and the model's probability."""

    name: str
    text: str
    probability: float


class ExclusivePlaces:
    """Who has which places in the lines of one record. Every round gives places to those that have none.

    Attributes:
        places: by attribute, where its value stands.
    """

    def __init__(self, lines: Sequence[str], rivals: Mapping[str, frozenset[str]]) -> None:
        """`lines`: as `field_lines`. `rivals`: as `CategorySchema.rivals`."""
        self._lines, self._rivals = lines, rivals
        self._bounds = cache(bounds_of)  # of most lines nobody asks
        self._contested: list[str] = []
        self.places: dict[str, Place] = {}

    def settle(self, values: Iterable[Copied]) -> list[str]:
        """Gives the values of a round their places, the likeliest one first, of equal ones the first by name.

        A text that stands nowhere needs none.

        Returns:
            The attributes whose values found none, in order: less than in the round before.
        """
        likeliest_first = sorted(values, key=lambda each: (-each.probability, each.name))
        contested = sorted([value.name for value in likeliest_first if not self._settle(value)])
        # Where a tokenizer changes texts, a value may be read again and again as one that stands where it must not.
        self._contested = [] if contested == self._contested else contested
        return self._contested

    def _settle(self, value: Copied) -> bool:
        """Gives a value its place. False: it has none, as all are taken."""
        taken, stands = self._taken(value.name), False
        for place in self._occurrences(value.text):
            if not any(_touch(place, other) for other in taken):
                self.places[value.name] = place
                return True
            stands = True
        return not stands

    def left_for(self, name: str) -> tuple[str, ...]:
        """The lines without what the attribute's rivals have: as `lines_of`, each begins where a run may."""
        taken = sorted(self._taken(name))
        found = (piece for number in range(len(self._lines)) for piece in self._around(number, taken))
        return tuple(dict.fromkeys(piece for piece in found if piece))

    def _taken(self, name: str) -> list[Place]:
        rivals = self._rivals.get(name, frozenset())
        return [place for other, place in self.places.items() if other in rivals]

    def _occurrences(self, text: str) -> Iterator[Place]:
        """Where it stands, first where it ends with a word."""
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
            # What is left of a word that a value ends in is no beginning of a run.
            begin = max(begin, min((each for each in starts if each >= stop), default=len(line)))
        yield line[begin:].strip()


def _touch(one: Place, other: Place) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
