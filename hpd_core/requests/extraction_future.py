"""Futures of the engine's calls: the results, and their cost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TypeVar

from hpd_core.errors import EngineError
from hpd_core.types import RecordResult

Result = TypeVar("Result")


@dataclass(slots=True)
class ExtractionMetrics:
    """Cost of one call. Tokens are counted where they were forwarded.

    `document_tokens_shared` were not forwarded: they belong to text shared with others, which was forwarded once.
    `scored_tokens` were forwarded to choose closed answers, and are not part of one.
    `busy_seconds` is the engine's time; each step's is split over its calls by tokens forwarded. Of it,
    `prefix_seconds` went into categories' prefixes and shared text; the rest is the sum of the results'
    `engine_seconds`. `num_records` grows while records are decoded.
    """

    num_records: int = 0
    num_errors: int = 0
    prefix_tokens_computed: int = 0
    prefix_tokens_reused: int = 0
    document_tokens: int = 0
    document_tokens_shared: int = 0
    key_tokens: int = 0
    value_tokens: int = 0
    scored_tokens: int = 0
    num_steps: int = 0
    busy_seconds: float = 0.0
    prefix_seconds: float = 0.0


class MeasuredFuture(Future[Result]):
    """Future with the cost of its result: `metrics` is complete when it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = ExtractionMetrics()


class ExtractionFuture(MeasuredFuture[list[RecordResult]]):
    """Results of one `submit`, in input order."""


def answer_in_turn(
    executor: Executor, work: Callable[[ExtractionMetrics], list[RecordResult]], name: str
) -> ExtractionFuture:
    """Queue `work` on the executor. It fills in the future's metrics, and its error becomes the future's.

    Raise `EngineError` ("`name` is closed") if the executor is shut down.
    """
    future = ExtractionFuture()
    # It cannot be called back.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(future.metrics))
        except Exception as error:
            future.set_exception(error)

    try:
        executor.submit(run)
    except RuntimeError as error:
        raise EngineError(f"{name} is closed") from error
    return future
