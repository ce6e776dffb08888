"""Values that must not stand in the same place of a text: which has which place, and what is left for the others.

    Kashi Golean Original Cereal       Sub brand (0.8)   Golean         has its place
                                       Brand (0.5)       Kashi Golean   finds none: is asked again, of "Kashi" and
                                                                        "Original Cereal"

The likelier value is the first to choose, and chooses the first place in which its text stands and no rival does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpd_core.text.runs import starts_of

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
        self._starts = [frozenset(starts_of(line)) for line in lines]
        self.places: dict[str, Place] = {}

    def settle(self, values: Iterable[Copied]) -> list[str]:
        """Gives the values of a round their places, the likeliest one first, of equal ones the first by name.

        A text that stands nowhere needs none.

        Returns:
            The attributes whose values found none, in order: less than in the round before, whose values were chosen
            among what was left for them.
        """
        contested = []
        for value in sorted(values, key=lambda each: (-each.probability, each.name)):
            places = list(self._occurrences(value.text))
            free = (place for place in places if not any(_touch(place, taken) for taken in self._taken(value.name)))
            if (place := next(free, None)) is not None:
                self.places[value.name] = place
            elif places:
                contested.append(value.name)
        return sorted(contested)

    def left_for(self, name: str) -> tuple[str, ...]:
        """The lines without what the attribute's rivals have: as `lines_of`, each begins where a run may."""
        taken = sorted(self._taken(name))
        found = (piece for number in range(len(self._lines)) for piece in self._around(number, taken))
        return tuple(dict.fromkeys(piece for piece in found if piece))

    def _taken(self, name: str) -> list[Place]:
        rivals = self._rivals.get(name, frozenset())
        return [place for other, place in self.places.items() if other in rivals]

    def _occurrences(self, text: str) -> Iterator[Place]:
        for number, (line, starts) in enumerate(zip(self._lines, self._starts, strict=True)):
            begin = line.find(text)
            while begin >= 0:
                if begin in starts:
                    yield number, begin, begin + len(text)
                begin = line.find(text, begin + 1)

    def _around(self, number: int, taken: Sequence[Place]) -> Iterator[str]:
        line, starts, begin = self._lines[number], self._starts[number], 0
        for _, start, stop in (place for place in taken if place[0] == number):
            yield line[begin : max(begin, start)].strip()
            # What is left of a word that a value ends in is no beginning of a run.
            begin = max(begin, min((each for each in starts if each >= stop), default=len(line)))
        yield line[begin:].strip()


def _touch(one: Place, other: Place) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
