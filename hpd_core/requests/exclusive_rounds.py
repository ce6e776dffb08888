"""Rounds for records with exclusive values: those whose place was taken are asked again, until none is left.

A round is a submission of the contested attributes alone. Each is chosen among the text that is left for it
(text/exclusive_places.py). Text that has been taken is not a possible answer any more, and its probability is dropped:
null and the remaining runs keep their first shares, divided by their sum. Every round gives a place to at least one
value of each record. Mostly there is one extra round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial

from hpd_core.requests.extraction_future import ExtractionFuture, ExtractionMetrics
from hpd_core.requests.prompt_builder import TextLeft, schema_of
from hpd_core.text.exclusive_places import Copied, ExclusivePlaces
from hpd_core.text.runs import field_lines
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
        self.future.set_running_or_notify_cancel()

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
