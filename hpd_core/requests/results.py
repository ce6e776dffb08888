"""Calls of `Engine.complete`, and the results of these and of records, made from the values of finished prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from hpd_core.decoding.prompt import BranchEnd, Prompt
from hpd_core.decoding.run_tries import RunTries
from hpd_core.errors import PromptError
from hpd_core.requests.calls import (
    Completion,
    CompletionFuture,
    OpenBranch,
    Refusal,
    Trunk,
    TrunkCompletions,
    refused_result,
    schema_of,
)
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.requests.request_queue import Request, RequestQueue
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import is_closed
from hpd_core.text.values import decoded_choice, parse_value, read_value
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, RecordResult, Value

Call = tuple[Sequence[Trunk], Sequence[Sequence[OpenBranch]]]
"""Trunks, and for each the branches that grow from it."""


class Completions:
    """Calls of `Engine.complete`. Thread-safe."""

    def __init__(
        self, builder: PromptBuilder, queue: RequestQueue, segments: SegmentTokenizer, runs: RunTries | None
    ) -> None:
        self._builder, self._queue, self._segments, self._runs = builder, queue, segments, runs

    def submit(self, calls: Sequence[Call], caller: object = None) -> list[CompletionFuture]:
        """Queue several calls of `Engine.complete` together, so that their prompts share even the first step.

        `caller` identifies whom they are for, across calls; None: a caller without other calls.
        """
        requests = list(map(self._request, calls))
        caller = object() if caller is None else caller
        for request in requests:
            request.caller = caller
        self._queue.add(requests)
        return [request.future for request in requests]  # type: ignore[misc]

    def _request(self, call: Call) -> Request:
        trunks, branches = call
        if len(trunks) != len(branches):
            raise ValueError(f"branches of {len(branches)} trunks, there are {len(trunks)}")
        refused: dict[int, str] = {}
        prompts: list[Prompt] = []
        for number, (trunk, own) in enumerate(zip(trunks, branches, strict=True)):
            try:
                prompts += self._builder.grow(number, trunk, own)
            except PromptError as error:
                refused[number] = str(error)
        future = CompletionFuture(lambda: self._queue.abandon(request))
        request = Request(prompts, future, partial(self._results, call, refused))
        return request

    def _results(self, call: Call, refused: dict[int, str], request: Request) -> list[TrunkCompletions]:
        trunks, branches = call
        found: list[dict[int, Completion]] = [{} for _ in trunks]
        sizes = [(0, 0)] * len(trunks)
        for prompt, values in request.values(self._segments):
            number, trunk = prompt.slots[0].trunk, len(prompt.layout.trunk)
            sizes[number] = trunk, (sizes[number][1] or trunk) + prompt.layout.num_tokens - trunk
            for slot, end, text in values:
                found[number][slot.branch] = self._completion(call, prompt, end, text)
        request.count(len(trunks), len(refused))
        none = Completion(None, "error")
        return [
            TrunkCompletions(tuple(found[number].get(place, none) for place in range(len(own))), error, *sizes[number])
            for number, own in enumerate(branches)
            for error in [refused.get(number)]
        ]

    def _completion(self, call: Call, prompt: Prompt, end: BranchEnd, text: str) -> Completion:
        slot = prompt.slots[end.branch]
        trunk, kind = call[0][slot.trunk], call[1][slot.trunk][slot.branch].kind
        raw = text.split("\n", 1)[0]
        if not all(map(math.isfinite, end.logprobs)):
            return Completion(None, "error", raw, end.num_tokens)
        value: Any
        value, status = read_value(kind, text, closed=end.closed, fields={"": trunk.text})
        runs = prompt.runs.get(end.branch)
        if runs is not None and status == "value" and self._runs is not None:
            value = self._runs.as_it_stands(runs, value, raw, end.tokens)
        return Completion(
            value,
            status,
            raw,
            end.num_tokens,
            end.logprob_mean,
            end.logprob_min,
            end.probability,
            end.chosen or ("greedy" if is_closed(kind) or runs is not None else None),
            end.margin,
        )


NO_NUMBERS = Refusal(
    ErrorCode.ENGINE,
    "the model's numbers are not finite (NaN or infinite): weights that are damaged, or a dtype that is too small for "
    "this model; try another engine.dtype",
)
"""Refusal of records whose answers have no finite probability: such a model's answers are random."""


@dataclass(frozen=True, slots=True)
class RecordResults:
    """Maker of the results of one call.

    Attributes:
        refusals: of the records that were not decoded, by record number.
        threshold: `EngineConfig.answer_threshold`.
    """

    records: Sequence[Record]
    schemas: Mapping[str, CategorySchema]
    refusals: Mapping[int, Refusal]
    segments: SegmentTokenizer
    runs: RunTries | None
    threshold: float | None

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
        runs = prompt.runs.get(end.branch)
        value = replace(
            parse_value(attribute, text, closed=end.closed, fields=record.fields),
            num_tokens=end.num_tokens,
            logprob_mean=end.logprob_mean,
            logprob_min=end.logprob_min,
            choice=end.chosen or (decoded_choice(attribute) if runs is None else "greedy"),
            probability=end.probability,
            margin=end.margin,
        )
        # Members that were all scored have been measured against the threshold, and null with them.
        if value.status == "value" and end.chosen != "scored" and end.probability < (self.threshold or 0.0):
            # How likely null is, nobody has asked.
            value = replace(value, probability=None, logprob_mean=None, logprob_min=None)
            return replace(value, text=None, items=(), status="absent")
        if runs is None or value.text is None or self.runs is None:
            return value
        copied = self.runs.as_it_stands(runs, value.text, value.raw, end.tokens)
        return replace(value, text=copied, items=(copied,))
