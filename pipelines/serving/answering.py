"""Admission of requests to the engine: a limited number, each with a deadline, cancelled if its client leaves."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

from hpd_core import Engine, EngineError, FieldAnswer, JsonFuture, JsonResult, SchemaLimits
from hpd_core.errors import PromptError, SchemaError
from pipelines.serving.gate import ServingLimits, ServingMetrics
from pipelines.serving.question import ServedQuestion
from pipelines.serving.reply import ApiError

_LONGEST_WAIT = 60  # seconds that a client is told to wait before it tries again
_MANY = 8  # open requests from which on the time between answers tells how fast they come
_WEIGHT = 0.1  # of the newest request in the mean of how long they take


class ServingDesk:
    """Admission of questions to the engine. Belongs to one event loop."""

    def __init__(self, engine: Engine, limits: ServingLimits, metrics: ServingMetrics) -> None:
        self.limits = limits
        self.metrics, self._engine = metrics, engine
        self._threads = ThreadPoolExecutor(thread_name_prefix="hpd-desk")
        self._num_open = 0
        self._mean_seconds = 1.0
        self._pace = 0.0  # seconds between answers while there is work; 0: not known yet
        self._last_end = 0.0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Reserve a place for one request.

        Raises `ApiError` (429) with a time to retry if the server is full, or would not come to it in time.
        """
        wait = self._pace * (self._num_open + 1)
        if self._num_open >= self.limits.max_open_requests or wait > self.limits.timeout_seconds:
            # Places become free one by one: by then some are.
            seconds = min(_LONGEST_WAIT, math.ceil(max(self._mean_seconds, wait - self.limits.timeout_seconds)))
            raise ApiError(
                429,
                f"{self._num_open:,} requests are waiting, as many as this server answers in time; try again in "
                f"{seconds} s",
                code="queue_full",
                headers={"Retry-After": str(seconds)},
            )
        started = time.monotonic()
        self._num_open += 1
        self.metrics.open_requests.set(self._num_open)
        try:
            yield
        finally:
            self._num_open -= 1
            self.metrics.open_requests.set(self._num_open)
            now = time.monotonic()
            self._mean_seconds += _WEIGHT * (now - started - self._mean_seconds)
            if self._num_open >= _MANY:  # few are answered side by side, however long each takes
                self._pace += _WEIGHT * (now - max(started, self._last_end) - self._pace)
            self._last_end = now

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Limit the time of the enclosed block to that of a request. Raises `ApiError` (504) when it is over."""
        seconds = self.limits.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise ApiError(504, f"there was no answer within {seconds:g} s", code="timeout") from error

    async def answer(self, question: ServedQuestion) -> JsonResult:
        """Return the engine's answer. Cancelled, it cancels what is not decoded.

        Raises:
            ApiError: the schema cannot be filled in (400), or decoding failed.
        """
        submitting = self._threads.submit(self._submit, question)
        try:
            # Given up before a thread has begun with it, it is not begun.
            future = await asyncio.wrap_future(submitting)
            (result,) = await asyncio.wrap_future(future)
        except EngineError as error:
            raise ApiError(500, f"decoding failed: {error}", code="engine_failed") from error
        finally:
            # A thread cannot be stopped: it may still be at it.
            submitting.add_done_callback(_abandon)
        if result.data is None:
            reasons = "; ".join(f"{problem.path or '/'}: {problem.message}" for problem in result.problems)
            raise ApiError(400, reasons, code="no_answer")
        _refuse_undecoded(result.fields.values())
        return result

    def _submit(self, question: ServedQuestion) -> JsonFuture:
        """Submit the question, in a thread, because this tokenizes texts."""
        limits = SchemaLimits(self.limits.max_branches, self.limits.max_depth, self.limits.max_members)
        try:
            return self._engine.submit_json(
                [question.document], question.schema, instruction=question.instruction, limits=limits
            )
        except SchemaError as error:
            message = f"{question.schema_at}: {error}"
            raise ApiError(400, message, param=question.schema_at, code="invalid_schema") from error
        except PromptError as error:
            raise ApiError(400, str(error), code="no_answer") from error
        except EngineError as error:
            raise ApiError(503, str(error), code="engine_failed") from error


def _abandon(submitted: Future[JsonFuture]) -> None:
    if not submitted.cancelled() and submitted.exception() is None:
        submitted.result().abandon()


def _refuse_undecoded(fields: Iterable[FieldAnswer]) -> None:
    for field in fields:
        if field.status == "error":
            raise ApiError(
                500,
                f"decoding failed at {field.path}: the model's numbers are not finite; try another engine.dtype",
                code="engine_failed",
            )
