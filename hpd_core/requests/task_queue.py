"""Queue of callers' tasks, and the one thread that decodes them: prompts of all callers share its steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.run_tries import RunTries
from hpd_core.errors import EngineError
from hpd_core.requests.extraction_future import ExtractionMetrics
from hpd_core.requests.preparation import Preparation


@dataclass(eq=False)
class Task:
    """Unit of work that one caller waits for.

    Attributes:
        prompts: prompts to decode; the owner of each names this task.
        future: future of the results made from their answers.
        make_results: makes the results, outside of the decoding thread, when all prompts are finished.
        metrics: cost of the task.
        caller: whom it is for: tasks of one caller take turns (requests/preparation.py) as if they were one.
    """

    prompts: Sequence[Prompt]
    future: Future[Any]
    make_results: Callable[[Task], Any]
    metrics: ExtractionMetrics
    finished: list[Prompt] = field(default_factory=list)
    caller: object = field(default_factory=object)
    _settled: threading.Lock = field(default_factory=threading.Lock)

    def settle(self, result: Any = None, error: BaseException | None = None) -> bool:
        """Give the future a result or an error. Return False if it already has one."""
        if not self._settled.acquire(blocking=False):
            return False
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)
        return True

    def count_tokens(self) -> None:
        """Add the tokens of all finished prompts to the metrics; to be called once."""
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

    @property
    def is_settled(self) -> bool:
        """Whether the task has its result or error, so that its prompts are not needed any more."""
        return self._settled.locked()


@dataclass(slots=True)
class Owner:
    """Task of a prompt, its `item` in it, the number of records it answers and the seconds it has cost."""

    task: Task
    item: Any
    num_records: int = 0
    seconds: float = 0.0


class TaskQueue:
    """Queue of tasks, which may be added from any thread. `close` it."""

    def __init__(self, decoder: Decoder, runs: RunTries | None = None) -> None:
        """Create the queue; its thread starts with the first task. `runs` prepares prompts with verbatim values."""
        self._decoder = decoder
        self._preparation = Preparation(runs, self._wake_up)
        self._inbox: deque[Task] = deque()
        self._abandoned: deque[Task] = deque()
        self._wake = threading.Condition()
        self._active: set[Task] = set()
        self._thread: threading.Thread | None = None
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-finish")
        self.is_closed = False

    def add(self, tasks: Iterable[Task]) -> None:
        """Queue tasks, which then share steps.

        Raises:
            EngineError: it is closed.
        """
        with self._wake:
            if self.is_closed:
                raise EngineError("the engine is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hpd-engine", daemon=True)
                self._thread.start()
            self._inbox.extend(tasks)
            self._wake.notify()

    def abandon(self, task: Task) -> None:
        """Abandon a task unless it is settled: its future fails with CancelledError, and its prompts are dropped."""
        if task.settle(error=CancelledError()):
            with self._wake:
                self._abandoned.append(task)
                self._wake.notify()

    def finish_later(self, work: Callable[[], None]) -> None:
        """Run `work`, which needs no model, in the thread that makes results instead of the one that decodes."""
        self._finisher.submit(work)

    def _wake_up(self) -> None:
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """End its threads; unfinished tasks fail with EngineError."""
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
        """Move new tasks to the decoder; sleep while there is nothing to do. Return False if the queue is closed."""
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
        for task in arrived:
            if not task.prompts:
                self._finish(task)
            elif not task.is_settled:
                self._decoder.add(self._preparation.add(task.prompts))
        prepared = self._preparation.take()
        for prompt, error in prepared:
            if error is not None:
                abandoned += self._fail([prompt.owner.task], error)
        self._add_prepared([prompt for prompt, _ in prepared])
        for task in abandoned:
            self._active.discard(task)
            self._decoder.drop(task.prompts)
        return True

    def _add_prepared(self, prompts: Sequence[Prompt]) -> None:
        wanted = []
        for prompt in prompts:
            if prompt.owner.task.is_settled:
                prompt.leases.clear()  # a future that is kept keeps the prompts
            else:
                wanted.append(prompt)
        if wanted:
            self._decoder.add(wanted)

    @property
    def _has_work(self) -> bool:
        return self._decoder.has_work or self._preparation.has_ready

    def _account(self, report: StepReport) -> None:
        """Split the step's time by tokens, and pass finished tasks on."""
        fed = list(chain.from_iterable(report.cohorts))
        seconds_per_token = report.seconds / max(1, sum(count for _, count in fed))
        for prompt, count in fed:
            seconds, metrics = count * seconds_per_token, prompt.owner.task.metrics
            metrics.busy_seconds += seconds
            if prompt.layout.num_branches:
                prompt.owner.seconds += seconds
            else:
                metrics.prefix_seconds += seconds  # of all products that share it, whoever asked first
        for task in {prompt.owner.task for prompt, _ in fed}:
            task.metrics.num_steps += 1
        for prompt in report.computed_prefixes:
            prompt.owner.task.metrics.prefix_tokens_computed += prompt.layout.num_tokens
        for prompt in report.computed_texts:
            metrics = prompt.owner.task.metrics
            metrics.document_tokens += prompt.num_own_tokens
            metrics.document_tokens_shared -= prompt.num_own_tokens  # of one of those who share it, it was forwarded
        for prompt in report.finished:
            prompt.leases.clear()
            task = prompt.owner.task
            task.finished.append(prompt)
            task.metrics.num_records += prompt.owner.num_records
            if len(task.finished) == len(task.prompts):
                self._finish(task)

    def _finish(self, task: Task) -> None:
        """Pass a decoded task on: another thread parses its answers while this one decodes on."""
        self._active.discard(task)
        self._finisher.submit(_resolve, task)

    def _fail_all(self, error: Exception) -> None:
        self._decoder.clear()
        self._preparation.clear()
        for task in self._fail(self._active, error):
            for prompt in task.prompts:
                prompt.leases.clear()  # a future that is kept keeps the prompts
        self._active.clear()

    def _fail(self, tasks: Iterable[Task], error: Exception) -> list[Task]:
        failed = list(tasks)
        for task in failed:
            failure = EngineError(f"the engine failed while decoding: {type(error).__name__}: {error}")
            failure.__cause__ = error
            task.settle(error=failure)
        return failed


def _resolve(task: Task) -> None:
    if task.is_settled:
        return
    try:
        result = task.make_results(task)
    except Exception as error:
        task.settle(error=error)
    else:
        task.settle(result)
