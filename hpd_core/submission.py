"""One caller's records on their way through the engine, and their results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hpd_core.decoding.prompt import Prompt
from hpd_core.extractor import refused_result
from hpd_core.prompt_builder import Refusal
from hpd_core.task_queue import Task
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import decoded_choice, parse_value
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, RecordResult, Value

NO_NUMBERS = Refusal(
    ErrorCode.ENGINE,
    "the model's numbers are not finite (NaN or infinite): weights that are damaged, or a dtype that is too small for "
    "this model; try another engine.dtype",
)
"""Of records whose answers would have no probability: what such a model says is chance."""


@dataclass(eq=False, slots=True)
class Submission:
    """Records, and why some of them are not decoded, by their numbers."""

    records: Sequence[Record]
    schemas: Mapping[str, CategorySchema]
    refusals: dict[int, Refusal]
    segments: SegmentTokenizer

    def results(self, task: Task) -> list[RecordResult]:
        """One a record, of a finished task; fills in the task's metrics."""
        answers: dict[int, dict[str, Value]] = {}
        seconds: Counter[int] = Counter()
        metrics = task.metrics
        prefix_tokens = 0
        for prompt in task.finished:
            texts = self.segments.decode(prompt.tokens)
            for branch, slot in enumerate(prompt.owner.item.slots):
                record = self.records[slot.record]
                attribute = self.schemas[record.category].attributes[slot.attribute]
                value = _value(attribute, record, prompt, branch, texts[branch])
                answers.setdefault(slot.record, {})[attribute.name] = value
                metrics.value_tokens += value.num_tokens
            records = prompt.owner.item.records
            if not all(map(math.isfinite, chain.from_iterable(prompt.logprobs))):
                self.refusals.update(dict.fromkeys(records, NO_NUMBERS))
            for twin in prompt.owner.item.twins:
                answers[twin] = answers[records[0]]
            for record_number in records:
                seconds[record_number] += prompt.owner.seconds / len(records)
            metrics.draft_tokens += prompt.num_draft_tokens
            metrics.rejected_tokens += prompt.num_rejected_tokens
            metrics.scored_tokens += prompt.num_scored_tokens
            layout = prompt.layout
            metrics.key_tokens += layout.num_key_tokens
            metrics.document_tokens += prompt.num_own_tokens - layout.num_key_tokens
            metrics.document_tokens_shared += prompt.num_shared_tokens
            prefix_tokens += layout.num_prefix_tokens
        metrics.num_records = len(self.records)
        metrics.num_errors = len(self.refusals)
        # What was computed and lost again, for want of memory, counts twice.
        metrics.document_tokens_shared = max(0, metrics.document_tokens_shared)
        metrics.prefix_tokens_reused = max(0, prefix_tokens - metrics.prefix_tokens_computed)
        return [
            replace(self._result(record, number, answers), engine_seconds=seconds[number])
            for number, record in enumerate(self.records)
        ]

    def _result(self, record: Record, number: int, answers: Mapping[int, dict[str, Value]]) -> RecordResult:
        refusal = self.refusals.get(number)
        if refusal is None:
            return RecordResult(record.id, record.category, answers[number])
        return refused_result(record, refusal, self.schemas.get(record.category))


def _value(attribute: Attribute, record: Record, prompt: Prompt, branch: int, text: str) -> Value:
    logprobs = prompt.logprobs[branch]
    value = parse_value(
        attribute,
        text,
        closed=prompt.closed[branch],
        fields=record.fields,
        num_tokens=len(logprobs),
        logprob_mean=sum(logprobs) / len(logprobs) if logprobs else None,
        logprob_min=min(logprobs, default=None),
    )
    chosen = prompt.choices[branch]
    if chosen is None:
        return replace(value, choice=decoded_choice(attribute), probability=math.exp(sum(logprobs)))
    if not chosen.is_sure:
        return replace(value, choice="beam", probability=chosen.share)
    return replace(value, choice="scored", probability=chosen.share, margin=chosen.margin)
