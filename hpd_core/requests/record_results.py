"""Results of records, made from the values of their finished prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hpd_core.decoding.prompt import BranchEnd, Prompt
from hpd_core.decoding.run_tries import RunTries
from hpd_core.requests.refusals import Refusal, refused_result, schema_of
from hpd_core.requests.request_queue import Request
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import decoded_choice, parse_value
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, RecordResult, Value

NO_NUMBERS = Refusal(
    ErrorCode.ENGINE,
    "the model's numbers are not finite (NaN or infinite): weights that are damaged, or a dtype that is too small for "
    "this model; try another engine.dtype",
)
"""Refusal of records whose answers have no finite probability: such a model's answers are random."""


@dataclass(frozen=True, slots=True)
class RecordResults:
    """Maker of the results of one call: its records, and the refusals of those not decoded, by record number."""

    records: Sequence[Record]
    schemas: Mapping[str, CategorySchema]
    refusals: Mapping[int, Refusal]
    segments: SegmentTokenizer
    runs: RunTries | None

    def of(self, request: Request) -> list[RecordResult]:
        """Return one result per record of a finished request, and complete its metrics."""
        refusals = dict(self.refusals)
        answers: dict[int, dict[str, Value]] = {}
        seconds = dict.fromkeys(range(len(self.records)), 0.0)
        for prompt, values in request.values(self.segments):
            for slot, end, text in values:
                record = self.records[slot.trunk]
                attribute = self.schemas[record.category].attributes[slot.branch]
                answers.setdefault(slot.trunk, {})[attribute.name] = self._value(attribute, record, prompt, end, text)
            trunks = prompt.trunks
            if not all(map(math.isfinite, chain.from_iterable(prompt.logprobs))):
                refusals.update(dict.fromkeys(trunks, NO_NUMBERS))
            for twin in prompt.twins:
                answers[twin] = answers[trunks[0]]
            for number in trunks:
                seconds[number] += prompt.seconds / len(trunks)
        request.count(len(self.records), len(refusals))
        results = []
        for number, record in enumerate(self.records):
            if number in refusals:
                refused = refused_result(record, refusals[number], schema_of(record, self.schemas))
                results.append(replace(refused, engine_seconds=seconds[number]))
            else:
                values_of = answers[number]
                results.append(RecordResult(record.id, record.category, values_of, engine_seconds=seconds[number]))
        return results

    def _value(self, attribute: Attribute, record: Record, prompt: Prompt, end: BranchEnd, text: str) -> Value:
        value = parse_value(
            attribute,
            text,
            closed=end.closed,
            fields=record.fields,
            num_tokens=end.num_tokens,
            logprob_mean=end.logprob_mean,
            logprob_min=end.logprob_min,
        )
        runs = prompt.runs.get(end.branch)
        choice = end.chosen or (decoded_choice(attribute) if runs is None else "greedy")
        value = replace(value, choice=choice, probability=end.probability, margin=end.margin)
        if runs is None or value.text is None or self.runs is None:
            return value
        copied = self.runs.as_it_stands(runs, value.text, value.raw, end.tokens)
        return replace(value, text=copied, items=(copied,))
