"""Rounds for records with exclusive values: those whose place was taken are asked again, until none is left.

A round is a submission of the contested attributes alone. Each is chosen among the text that is left for it. Text that
has been taken is not a possible answer any more, and its probability is dropped:
null and the remaining runs keep their first shares, divided by their sum. Every round gives a place to at least one
value of each record. Mostly there is one extra round.

    Kashi Golean Original Cereal       Sub brand (0.8)   Golean         has its place
                                       Brand (0.5)       Kashi Golean   finds none: is asked again, among "Kashi"
                                                                        and "Original Cereal"

Likelier values choose first. Each takes the first occurrence of its text that overlaps no rival. An occurrence that
ends inside a word ("1" in "16 oz") is taken only if there is no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial

from hpd_core.requests.calls import ExtractionFuture, ExtractionMetrics, schema_of
from hpd_core.requests.prompt_builder import TextLeft
from hpd_core.text.runs import bounds_of, field_lines
from hpd_core.types import CategorySchema, Record, RecordResult, Value

Wanted = Sequence[Collection[str] | None] | None


Ask = Callable[
    [Sequence[Record], Mapping[str, CategorySchema], Sequence[Sequence[int]] | None, Wanted, Sequence[TextLeft] | None],
    ExtractionFuture,
]
"""Function that makes one submission: arguments of `Engine.submit`, and the text that is left of each record."""


class ExclusiveRounds:
    """Rounds of one submission; call `start` once."""

    def __init__(
        self,
        ask: Ask,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None,
        wanted: Wanted,
    ) -> None:
        """Take the arguments of `Engine.submit`, and `ask`, which makes a submission."""
        self._ask, self._records, self._schemas = ask, list(records), dict(schemas)
        self._ids, self._wanted = document_ids, wanted
        self._results: dict[int, RecordResult] = {}
        self._places: dict[int, ExclusivePlaces] = {}
        self._rates: dict[int, dict[str, float | None]] = {}
        self.future = ExtractionFuture()

    def start(self) -> ExtractionFuture:
        """Submit the first round. A wanted attribute is asked together with all exclusive ones, its possible rivals.

        Raises:
            ValueError, EngineError: as `Engine.submit`.
        """
        wanted = self._wanted
        if wanted is not None and len(wanted) == len(self._records):
            wanted = [self._with_rivals(*each) for each in zip(self._records, wanted, strict=True)]
        first = self._ask(self._records, self._schemas, self._ids, wanted, None)
        first.add_done_callback(partial(self._go_on, range(len(self._records))))
        return self.future

    def _with_rivals(self, record: Record, wanted: Collection[str] | None) -> Collection[str] | None:
        schema = schema_of(record, self._schemas)
        if wanted is None or schema is None or schema.rivals.keys().isdisjoint(wanted):
            return wanted
        known = {attribute.name for attribute in schema.attributes}
        return {*wanted, *schema.rivals} if known.issuperset(wanted) else wanted  # which is refused, as it was said

    def _go_on(self, numbers: Sequence[int], future: ExtractionFuture) -> None:
        """Take a round's answers and ask the contested attributes again; runs in a thread of the engine."""
        try:
            self._count(future.metrics)
            contested = {
                number: names
                for number, result in zip(numbers, future.result(), strict=True)
                if (names := self._take(number, result))
            }
            if contested:
                self._ask_again(contested)
            else:
                self.future.set_result(self._finished())
        except Exception as error:
            self.future.set_exception(error)

    def _ask_again(self, contested: Mapping[int, Sequence[str]]) -> None:
        numbers = list(contested)
        again = self._ask(
            [self._records[number] for number in numbers],
            self._schemas,
            None if self._ids is None else [self._ids[number] for number in numbers],
            list(contested.values()),
            [{name: self._left(number, name) for name in names} for number, names in contested.items()],
        )
        again.add_done_callback(partial(self._go_on, numbers))

    def _left(self, number: int, name: str) -> tuple[tuple[str, ...], float | None]:
        return self._places[number].left_for(name), self._rates[number][name]

    def _take(self, number: int, result: RecordResult) -> list[str]:
        """Store a round's result of a record. Return the names of its contested attributes."""
        before = self._results.get(number)
        seconds = result.engine_seconds + (before.engine_seconds if before else 0.0)
        values = result.values if before is None or result.error is not None else {**before.values, **result.values}
        self._results[number] = replace(result, values=values, engine_seconds=seconds)
        record, schema = self._records[number], schema_of(self._records[number], self._schemas)
        if result.error is not None or schema is None or not schema.rivals:
            return []
        if number not in self._places:
            self._places[number] = ExclusivePlaces(field_lines(record.fields), schema.rivals)
            self._rates[number] = {name: _rate(value) for name, value in values.items() if name in schema.rivals}
        return self._places[number].settle(
            Copied(name, value.text, value.probability or 0.0)
            for name, value in result.values.items()
            if name in schema.rivals and value.text is not None
        )

    def _count(self, metrics: ExtractionMetrics) -> None:
        total = self.future.metrics
        for each in fields(ExtractionMetrics):
            setattr(total, each.name, getattr(total, each.name) + getattr(metrics, each.name))

    def _finished(self) -> list[RecordResult]:
        results = [self._results[number] for number in range(len(self._records))]
        self.future.metrics.num_records = len(results)
        self.future.metrics.num_errors = sum(result.error is not None for result in results)
        return [_only(*each) for each in zip(results, self._wanted or [None] * len(results), strict=True)]


def _rate(value: Value) -> float | None:
    """Return the share per unit of likelihood of a value that is a run; None if its share of all runs is unknown."""
    if value.choice == "greedy" or value.logprob_mean is None or value.probability is None:
        return None
    likelihood = math.exp(value.num_tokens * value.logprob_mean)
    return value.probability / likelihood if likelihood else None


def _only(result: RecordResult, wanted: Collection[str] | None) -> RecordResult:
    if wanted is None or result.error is not None:
        return result
    return replace(result, values={name: value for name, value in result.values.items() if name in wanted})


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
