"""Queue of requests, and the one thread that decodes them: prompts of all callers share its steps.

Preparation of prompts whose values are chosen among runs of their documents, before they are decoded.

Their tries (decoding/run_tries.py) take memory. A separate thread builds them for a few prompts at a time, shortly
before these are decoded, and they are freed when the prompts finish: a submission may have thousands of documents.
Callers take turns, a prompt each, so one with few prompts does not wait for all of another one's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import BranchEnd, Prompt, Slot
from hpd_core.decoding.run_tries import RunTries
from hpd_core.errors import EngineError
from hpd_core.requests.calls import ExtractionMetrics, MeasuredFuture
from hpd_core.text.tokenization import SegmentTokenizer


class RequestQueue:
    """Queue of requests, which may be added from any thread. `close` it."""

    def __init__(self, decoder: Decoder, runs: RunTries | None = None) -> None:
        """Create the queue; its thread starts with the first request. `runs` prepares prompts with verbatim values."""
        self._decoder = decoder
        self._preparation = Preparation(runs, self._wake_up)
        self._inbox: deque[Request] = deque()
        self._abandoned: deque[Request] = deque()
        self._wake = threading.Condition()
        self._active: set[Request] = set()
        self._thread: threading.Thread | None = None
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-finish")
        self.is_closed = False

    def add(self, requests: Iterable[Request]) -> None:
        """Queue requests, which then share steps.

        Raises:
            EngineError: it is closed.
        """
        with self._wake:
            if self.is_closed:
                raise EngineError("the engine is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hpd-engine", daemon=True)
                self._thread.start()
            self._inbox.extend(requests)
            self._wake.notify()

    def abandon(self, request: Request) -> None:
        """Abandon a request unless it is settled: its future fails with CancelledError, and its prompts are dropped."""
        if request.future.settle(error=CancelledError()):
            with self._wake:
                self._abandoned.append(request)
                self._wake.notify()

    def _wake_up(self) -> None:
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """End its threads; unfinished requests fail with EngineError."""
        with self._wake:
            self.is_closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        self._preparation.close()
        self._finisher.shutdown()

    @property
    def thread(self) -> threading.Thread | None:
        """Thread that decodes; None if it has not been started."""
        return self._thread

    # The thread that decodes.

    def _run(self) -> None:
        while self._take():
            if not self._decoder.has_work:
                continue
            try:
                self._account(self._decoder.step())
            except Exception as error:
                self._fail_all(error)
        self._fail_all(EngineError("the engine was closed"))

    def _take(self) -> bool:
        """Move new requests to the decoder; sleep while there is nothing to do. Return False if the queue is closed."""
        self._preparation.go_on(is_needed=not self._decoder.has_work)
        with self._wake:
            while not (self._inbox or self._abandoned or self._has_work or self.is_closed):
                self._wake.wait()
            arrived, abandoned = list(self._inbox), list(self._abandoned)
            self._inbox.clear()
            self._abandoned.clear()
            self._active.update(arrived)
            if self.is_closed:
                return False
        for request in arrived:
            if not request.prompts:
                self._finish(request)
            elif not request.future.done():
                self._decoder.add(self._preparation.add(request.prompts))
        prepared = self._preparation.take()
        for prompt, error in prepared:
            if error is not None:
                abandoned += self._fail([prompt.owner], error)
        self._add_prepared([prompt for prompt, _ in prepared])
        for request in abandoned:
            self._active.discard(request)
            self._decoder.drop(request.prompts)
        return True

    def _add_prepared(self, prompts: Sequence[Prompt]) -> None:
        wanted = []
        for prompt in prompts:
            if prompt.owner.future.done():
                prompt.leases.clear()  # a future that is kept keeps the prompts
            else:
                wanted.append(prompt)
        if wanted:
            self._decoder.add(wanted)

    @property
    def _has_work(self) -> bool:
        return self._decoder.has_work or self._preparation.has_ready

    def _account(self, report: StepReport) -> None:
        """Split the step's time by tokens, and pass finished requests on."""
        fed = list(chain.from_iterable(report.cohorts))
        seconds_per_token = report.seconds / max(1, sum(count for _, count in fed))
        for prompt, count in fed:
            seconds, metrics = count * seconds_per_token, prompt.owner.metrics
            metrics.busy_seconds += seconds
            if prompt.layout.num_branches:
                prompt.seconds += seconds
            else:
                metrics.prefix_seconds += seconds  # of all products that share it, whoever asked first
        for request in {prompt.owner for prompt, _ in fed}:
            request.metrics.num_steps += 1
        for prompt in report.computed_prefixes:
            prompt.owner.metrics.prefix_tokens_computed += prompt.layout.num_tokens
        for prompt in report.computed_texts:
            metrics = prompt.owner.metrics
            metrics.document_tokens += prompt.num_own_tokens
            metrics.document_tokens_shared -= prompt.num_own_tokens  # of one of those who share it, it was forwarded
        for prompt in report.finished:
            prompt.leases.clear()
            request = prompt.owner
            request.finished.append(prompt)
            request.metrics.num_records += len(prompt.trunks)
            if len(request.finished) == len(request.prompts):
                self._finish(request)

    def _finish(self, request: Request) -> None:
        """Pass a decoded request on: another thread parses its answers while this one decodes on."""
        self._active.discard(request)
        self._finisher.submit(_resolve, request)

    def _fail_all(self, error: Exception) -> None:
        self._decoder.clear()
        self._preparation.clear()
        for request in self._fail(self._active, error):
            for prompt in request.prompts:
                prompt.leases.clear()  # a future that is kept keeps the prompts
        self._active.clear()

    def _fail(self, requests: Iterable[Request], error: Exception) -> list[Request]:
        failed = list(requests)
        for request in failed:
            failure = EngineError(f"the engine failed while decoding: {type(error).__name__}: {error}")
            failure.__cause__ = error
            request.future.settle(error=failure)
        return failed


def _resolve(request: Request) -> None:
    if request.future.done():
        return
    try:
        result = request.make_results(request)
    except Exception as error:
        request.future.settle(error=error)
    else:
        request.future.settle(result)


@dataclass(eq=False)
class Request:
    """Work that one caller waits for.

    Attributes:
        prompts: prompts to decode, which belong to this request alone.
        future: future of the results.
        make_results: makes the results, outside of the decoding thread, when all prompts are finished.
        caller: whom it is for: requests of one caller take turns (requests/request_queue.py) as if they were one.
        finished: prompts that are decoded, as they ended.
    """

    prompts: Sequence[Prompt]
    future: MeasuredFuture[Any]
    make_results: Callable[[Request], Any]
    caller: object = field(default_factory=object)
    finished: list[Prompt] = field(default_factory=list)

    def __post_init__(self) -> None:
        for prompt in self.prompts:
            prompt.owner = self

    @property
    def metrics(self) -> ExtractionMetrics:
        """Cost of the request, as its future tells it."""
        return self.future.metrics

    def values(self, segments: SegmentTokenizer) -> Iterator[tuple[Prompt, list[tuple[Slot, BranchEnd, str]]]]:
        """Yield the finished prompts, each with its values: what was asked, how it ended and its text."""
        for prompt in self.finished:
            yield prompt, list(zip(prompt.slots, prompt.ends, segments.decode(prompt.tokens), strict=True))

    def count(self, num_records: int, num_errors: int) -> None:
        """Complete the metrics from all finished prompts; to be called once."""
        metrics, prefix_tokens = self.metrics, 0
        for prompt in self.finished:
            num_keys = prompt.layout.num_key_tokens
            metrics.value_tokens += sum(map(len, prompt.logprobs))
            metrics.scored_tokens += prompt.num_scored_tokens
            metrics.key_tokens += num_keys
            metrics.document_tokens += prompt.num_own_tokens - num_keys
            metrics.document_tokens_shared += prompt.num_shared_tokens
            prefix_tokens += prompt.layout.num_prefix_tokens
        # What was computed and lost again, for want of memory, counts twice.
        metrics.document_tokens_shared = max(0, metrics.document_tokens_shared)
        metrics.prefix_tokens_reused = max(0, prefix_tokens - metrics.prefix_tokens_computed)
        metrics.num_records, metrics.num_errors = num_records, num_errors


_MOST_PROMPTS = 32
_MOST_CHARACTERS = 4_000
"""Maximum characters of all texts prepared at once: later prompts wait for them."""

Prepared = tuple[Prompt, Exception | None]
"""Prompt that is ready, with None; or one whose preparation failed, with the error."""


class Preparation:
    """Queue that prepares prompts, those of each caller in order of arrival. `close` it.

    All but `has_ready` must be called from one thread.
    """

    def __init__(self, runs: RunTries | None, tell: Callable[[], None]) -> None:
        """Take None for `runs` if no prompt needs it. `tell` is called in another thread when prompts are ready."""
        self._runs, self._tell = runs, tell
        self._waiting: dict[object, deque[Prompt]] = {}  # by caller; whose turn is next comes first
        self._ready: deque[list[Prepared]] = deque()
        self._is_running = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-prepare")

    def add(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """Queue prompts. Return those that need no preparation."""
        ready: list[Prompt] = []
        for prompt in prompts:
            if prompt.runs:
                self._waiting.setdefault(prompt.owner.caller, deque()).append(prompt)
            else:
                ready.append(prompt)
        return ready

    def go_on(self, *, is_needed: bool) -> None:
        """Prepare the next prompts if there is room or `is_needed`, unless others are under way or not yet taken."""
        if self._runs is None or self._is_running or self._ready or not self._waiting:
            return
        if is_needed or self._runs.has_room:
            self._is_running = True
            self._executor.submit(self._prepare, self._runs, self._next())

    @property
    def has_ready(self) -> bool:
        """Whether `take` would return prompts."""
        return bool(self._ready)

    def take(self) -> list[Prepared]:
        """Return the prompts that have become ready, and start on the next ones if there is room."""
        found: list[Prepared] = []
        while self._ready:
            found += self._ready.popleft()
            self._is_running = False
        self.go_on(is_needed=False)
        return found

    def _next(self) -> list[Prompt]:
        """Remove and return the next batch: one prompt of each caller in turn, at least one in all."""
        some: list[Prompt] = []
        room = _MOST_CHARACTERS
        while self._waiting and len(some) < _MOST_PROMPTS:
            caller, prompts = next(iter(self._waiting.items()))
            size = _num_characters(prompts[0])
            if some and size > room:
                break
            room -= size
            some.append(prompts.popleft())
            del self._waiting[caller]
            if prompts:
                self._waiting[caller] = prompts  # after the others
        return some

    def clear(self) -> None:
        """Drop all waiting prompts."""
        self._waiting.clear()

    def close(self) -> None:
        """End its thread."""
        self._executor.shutdown()

    def _prepare(self, runs: RunTries, prompts: Sequence[Prompt]) -> None:
        self._ready.append([(prompt, _problem(runs, prompt)) for prompt in prompts])
        self._tell()


def _num_characters(prompt: Prompt) -> int:
    """Count the characters of the texts whose runs the prompt needs; 0 if its request is settled."""
    if prompt.owner.future.done():
        return 0
    return sum(len(line) for runs in set(prompt.runs.values()) for line in runs.lines)


def _problem(runs: RunTries, prompt: Prompt) -> Exception | None:
    """Prepare a prompt unless its request is settled. Return the error, if any, so that it affects no other prompt."""
    try:
        if not prompt.owner.future.done():
            runs.prepare(prompt)
    except Exception as error:
        return error
    return None
