"""Queue of requests, and the one thread that decodes them: prompts of all callers share its steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import chain

from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.run_tries import RunTries
from hpd_core.errors import EngineError
from hpd_core.requests.preparation import Preparation
from hpd_core.requests.request import Request


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
        if request.settle(error=CancelledError()):
            with self._wake:
                self._abandoned.append(request)
                self._wake.notify()

    def finish_later(self, work: Callable[[], None]) -> None:
        """Run `work`, which needs no model, in the thread that makes results instead of the one that decodes."""
        self._finisher.submit(work)

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
            elif not request.is_settled:
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
            if prompt.owner.is_settled:
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
            request.settle(error=failure)
        return failed


def _resolve(request: Request) -> None:
    if request.is_settled:
        return
    try:
        result = request.make_results(request)
    except Exception as error:
        request.settle(error=error)
    else:
        request.settle(result)
