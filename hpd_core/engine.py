"""The engine: records in, values out. Prompts are built in the caller's thread; one thread of ours decodes."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self

from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.memory import Limits
from hpd_core.decoding.prompt import Prompt
from hpd_core.errors import EngineError, ModelError
from hpd_core.extractor import ExtractionFuture, Extractor, Weights, refused_result
from hpd_core.models import description, loading, steering
from hpd_core.parallel.group import Group
from hpd_core.prompt_builder import PreparedPrompt, PromptBuilder, Refusal
from hpd_core.text.constraints import Constraints
from hpd_core.text.member_tries import ClosedAnswers
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import decoded_choice, parse_value
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, RecordResult, Value

_NO_NUMBERS = Refusal(
    ErrorCode.ENGINE,
    "the model's numbers are not finite (NaN or infinite): weights that are damaged, or a dtype that is too small for "
    "this model; try another engine.dtype",
)
"""Of records whose answers would have no probability: what such a model says is chance."""


@dataclass(eq=False, slots=True)
class _Submission:
    """One caller's records on their way."""

    records: Sequence[Record]
    schemas: Mapping[str, CategorySchema]
    refusals: dict[int, Refusal]
    future: ExtractionFuture
    num_open: int  # prompts that are not finished
    finished: list[Prompt] = field(default_factory=list)


@dataclass(slots=True)
class _Owner:
    """What a prompt belongs to, and what it has cost."""

    submission: _Submission
    prepared: PreparedPrompt
    seconds: float = 0.0


class Engine(Extractor):
    """Extracts attribute values with a language model.

    `extract` waits; `submit` returns a future, and the work of several callers shares the same steps. Both may be
    called from any thread. Use as a context manager, or `close` it, to end its thread.
    """

    decoding = "hpd"

    def __init__(
        self, model: Any, tokenizer: Any, config: EngineConfig | None = None, group: Group | None = None
    ) -> None:
        """Takes an already loaded transformers model, for itself.

        Its attention implementation is replaced, and on a GPU weights that are multiplied together are laid side by
        side. Whoever puts others in their place later makes a new engine.

        Args:
            group: the processes that have the other parts of the model, and this `config`; `from_pretrained` starts
                them.

        Raises:
            ModelError: the model cannot work with HPD; the message says why.
            PromptError: the tokenizer's chat template does not take the configured messages.
        """
        started = time.perf_counter()
        self.config = config or EngineConfig()
        self._group = group
        if self.config.tensor_parallel > 1 and group is None:
            raise ModelError("tensor_parallel needs several processes, which Engine.from_pretrained starts")
        steering.attach(model)
        self._weights = Weights.of(model)
        self._segments = SegmentTokenizer(tokenizer)
        description.refuse_unknown_tokens(model, self._segments)
        vocab_size = model.get_output_embeddings().weight.shape[0]
        constraints = Constraints(tokenizer, vocab_size)
        used = constraints if self.config.constrain_values else None
        self.endings = endings = description.endings(model, self._segments)
        closed = ClosedAnswers(tokenizer, endings, self.config.max_scored_tokens)
        self._builder = PromptBuilder(tokenizer, self.config, description.max_positions(model.config), used, closed)
        self._decoder: Decoder
        if group is not None:
            self._decoder = group.decoder(tokenizer, endings, constraints.table, closed.table)
        else:
            shape = description.cache_shape(model)
            self._decoder = Decoder(model, endings, self.config, shape, constraints.table, closed.table)
            steering.verify(model, tokenizer, self._decoder)
            self._decoder.fit()

        self._inbox: deque[tuple[_Submission, list[PreparedPrompt]]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._active: set[_Submission] = set()
        self._thread: threading.Thread | None = None
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-finish")
        self.load_seconds = time.perf_counter() - started

    @classmethod
    def _load(cls, model: str, config: EngineConfig, adapter: str | None) -> Self:
        if config.tensor_parallel == 1:
            return super()._load(model, config, adapter)
        group = Group(model, config, adapter)
        try:
            tokenizer = loading.load_tokenizer(model, config)
            group.load(tokenizer)
            engine = cls(group.weights.model, tokenizer, group.weights.settings(config), group)
        except BaseException as error:
            # One process fails because of another as a rule; the first one knows why.
            reason = group.end_after(error)
            if reason is None:
                raise
            raise reason from error
        engine._weights = group.weights
        return engine

    @property
    def layout(self) -> str:
        """'tree' or 'stacked'."""
        return self.config.layout

    @property
    def attention(self) -> str:
        """What 'auto' has led to on this machine."""
        return self._decoder.way

    @property
    def layers(self) -> str:
        """Whose code runs the model's layers: 'native', 'compiled' or 'transformers'."""
        return self._decoder.layers

    @property
    def max_scored_tokens(self) -> int:
        """As set; 0 where values see others, or are not constrained."""
        is_scored = self.layout == "tree" and self.config.constrain_values
        return self.config.max_scored_tokens if is_scored else 0

    @property
    def limits(self) -> Limits:
        """How much is decoded at a time now: less than at first where memory was missing."""
        return self._decoder.limits

    @property
    def overlaps_steps(self) -> bool:
        """Whether the device has one step while the host does what is to be done for another."""
        return self._decoder.overlaps_steps

    def submit(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
    ) -> ExtractionFuture:
        """As `Extractor.submit`. A callback of the future must not wait for the engine."""
        future = ExtractionFuture()
        # Work is shared with others, so it cannot be called back.
        future.set_running_or_notify_cancel()
        prepared, refusals = self._builder.build(records, schemas, document_ids, wanted)
        submission = _Submission(list(records), dict(schemas), refusals, future, len(prepared))
        for item in prepared:
            item.prompt.owner = _Owner(submission, item)
        with self._wake:
            if self._closed:
                raise EngineError("the engine is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hpd-engine", daemon=True)
                self._thread.start()
            self._inbox.append((submission, prepared))
            self._wake.notify()
        return future

    def close(self) -> None:
        """Ends the engine's thread; what is not finished fails with EngineError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        self._finisher.shutdown()
        if self._group is not None:
            self._group.close()

    # The engine's thread.

    def _run(self) -> None:
        while self._take_submissions():
            if not self._decoder.has_work:
                continue
            try:
                self._account(self._decoder.step())
            except Exception as error:
                self._fail_all(error)
        self._fail_all(EngineError("the engine was closed"))

    def _take_submissions(self) -> bool:
        """Moves new submissions to the decoder; sleeps while there is nothing to do. False: time to end."""
        with self._wake:
            while not (self._inbox or self._decoder.has_work or self._closed):
                self._wake.wait()
            arrived = list(self._inbox)
            self._inbox.clear()
            for submission, _ in arrived:
                self._active.add(submission)
            if self._closed:
                return False
        for submission, prepared in arrived:
            if prepared:
                self._decoder.add(item.prompt for item in prepared)
            else:
                self._finish(submission)
        return True

    def _account(self, report: StepReport) -> None:
        """Splits the step's time by tokens, and hands finished submissions on."""
        fed = list(chain.from_iterable(report.cohorts))
        seconds_per_token = report.seconds / max(1, sum(count for _, count in fed))
        for prompt, count in fed:
            seconds, metrics = count * seconds_per_token, prompt.owner.submission.future.metrics
            metrics.busy_seconds += seconds
            if prompt.layout.num_branches:
                prompt.owner.seconds += seconds
            else:
                metrics.prefix_seconds += seconds  # of all products that have it, whoever asked first
        for submission in {prompt.owner.submission for prompt, _ in fed}:
            submission.future.metrics.num_steps += 1
        for prompt in report.computed_prefixes:
            prompt.owner.submission.future.metrics.prefix_tokens_computed += prompt.layout.num_tokens
        for prompt in report.computed_texts:
            metrics = prompt.owner.submission.future.metrics
            metrics.document_tokens += prompt.num_own_tokens
            metrics.document_tokens_shared -= prompt.num_own_tokens  # of one of those who share it, it was forwarded
        for prompt in report.finished:
            submission = prompt.owner.submission
            submission.finished.append(prompt)
            submission.num_open -= 1
            if submission.num_open == 0:
                self._finish(submission)

    def _finish(self, submission: _Submission) -> None:
        """Parsing needs no model: another thread does it while this one decodes on."""
        self._active.discard(submission)
        self._finisher.submit(self._resolve, submission)

    def _resolve(self, submission: _Submission) -> None:
        try:
            submission.future.set_result(self._results(submission))
        except Exception as error:
            submission.future.set_exception(error)

    def _fail_all(self, error: Exception) -> None:
        self._decoder.clear()
        for submission in self._active:
            failure = EngineError(f"the engine failed while decoding: {type(error).__name__}: {error}")
            failure.__cause__ = error
            submission.future.set_exception(failure)
        self._active.clear()

    def _results(self, submission: _Submission) -> list[RecordResult]:
        answers: dict[int, dict[str, Value]] = {}
        seconds: Counter[int] = Counter()
        metrics = submission.future.metrics
        prefix_tokens = 0
        for prompt in submission.finished:
            texts = self._segments.decode(prompt.tokens)
            for branch, slot in enumerate(prompt.owner.prepared.slots):
                record = submission.records[slot.record]
                attribute = submission.schemas[record.category].attributes[slot.attribute]
                value = _value(attribute, record, prompt, branch, texts[branch])
                answers.setdefault(slot.record, {})[attribute.name] = value
                metrics.value_tokens += value.num_tokens
            records = prompt.owner.prepared.records
            if not all(map(math.isfinite, chain.from_iterable(prompt.logprobs))):
                submission.refusals.update(dict.fromkeys(records, _NO_NUMBERS))
            for twin in prompt.owner.prepared.twins:
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
        metrics.num_records = len(submission.records)
        metrics.num_errors = len(submission.refusals)
        # What was computed and lost again, for want of memory, counts twice.
        metrics.document_tokens_shared = max(0, metrics.document_tokens_shared)
        metrics.prefix_tokens_reused = max(0, prefix_tokens - metrics.prefix_tokens_computed)
        return [
            replace(_result(record, number, answers, submission), engine_seconds=seconds[number])
            for number, record in enumerate(submission.records)
        ]


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


def _result(
    record: Record, number: int, answers: Mapping[int, dict[str, Value]], submission: _Submission
) -> RecordResult:
    refusal = submission.refusals.get(number)
    if refusal is None:
        return RecordResult(record.id, record.category, answers[number])
    return refused_result(record, refusal, submission.schemas.get(record.category))
