"""Records of one caller on their way through the engine, and their results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hpd_core.decoding.prompt import BranchEnd
from hpd_core.decoding.run_tries import RunTries
from hpd_core.requests.prompt_builder import Refusal, refused_result, schema_of
from hpd_core.requests.task_queue import Task
from hpd_core.text.runs import Runs
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import decoded_choice, parse_value
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, RecordResult, Value

NO_NUMBERS = Refusal(
    ErrorCode.ENGINE,
    "the model's numbers are not finite (NaN or infinite): weights that are damaged, or a dtype that is too small for "
    "this model; try another engine.dtype",
)
"""Refusal of records whose answers have no finite probability: such a model's answers are random."""


@dataclass(eq=False, slots=True)
class Submission:
    """Records of one call, and the refusals of those not decoded, by record number."""

    records: Sequence[Record]
    schemas: Mapping[str, CategorySchema]
    refusals: dict[int, Refusal]
    segments: SegmentTokenizer
    runs: RunTries | None = None

    def results(self, task: Task) -> list[RecordResult]:
        """Return one result per record of a finished task, and fill in the task's metrics."""
        answers: dict[int, dict[str, Value]] = {}
        seconds: Counter[int] = Counter()
        for prompt in task.finished:
            texts = self.segments.decode(prompt.tokens)
            for slot, end, text in zip(prompt.owner.item.slots, prompt.ends, texts, strict=True):
                record = self.records[slot.record]
                attribute = self.schemas[record.category].attributes[slot.attribute]
                value = _value(attribute, record, end, text)
                if (runs := prompt.runs.get(end.branch)) is not None:
                    value = self._verbatim(value, runs, end)
                answers.setdefault(slot.record, {})[attribute.name] = value
            records = prompt.owner.item.records
            if not all(map(math.isfinite, chain.from_iterable(prompt.logprobs))):
                self.refusals.update(dict.fromkeys(records, NO_NUMBERS))
            for twin in prompt.owner.item.twins:
                answers[twin] = answers[records[0]]
            for record_number in records:
                seconds[record_number] += prompt.owner.seconds / len(records)
        task.count_tokens()
        task.metrics.num_records = len(self.records)
        task.metrics.num_errors = len(self.refusals)
        return [
            replace(self._result(record, number, answers), engine_seconds=seconds[number])
            for number, record in enumerate(self.records)
        ]

    def _verbatim(self, value: Value, runs: Runs, end: BranchEnd) -> Value:
        value = replace(value, choice=end.chosen or "greedy")
        if value.text is None or self.runs is None:
            return value
        text = self.runs.as_it_stands(runs, value.text, value.raw, end.tokens)
        return replace(value, text=text, items=(text,))

    def _result(self, record: Record, number: int, answers: Mapping[int, dict[str, Value]]) -> RecordResult:
        refusal = self.refusals.get(number)
        if refusal is None:
            return RecordResult(record.id, record.category, answers[number])
        return refused_result(record, refusal, schema_of(record, self.schemas))


def _value(attribute: Attribute, record: Record, end: BranchEnd, text: str) -> Value:
    value = parse_value(
        attribute,
        text,
        closed=end.closed,
        fields=record.fields,
        num_tokens=end.num_tokens,
        logprob_mean=end.logprob_mean,
        logprob_min=end.logprob_min,
    )
    choice = end.chosen or decoded_choice(attribute)
    return replace(value, choice=choice, probability=end.probability, margin=end.margin)
