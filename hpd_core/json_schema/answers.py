"""Results of `Engine.extract_json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from hpd_core.requests.trunk import CompletionFuture
from hpd_core.types import ValueStatus


@dataclass(frozen=True, slots=True)
class Problem:
    """Error in a part of the answer: `path` is its JSON pointer, "" is all of it."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """Answer to one field.

    Attributes:
        path: JSON pointer, as "/buyer/name" or "/lines/0/price".
        value: plain JSON; None unless the status is "value".
        text: as the model wrote it. The keys of a list's items were written in one value, which each of them shows.
        status: "value", "absent" (null), "truncated", "invalid" or "error".
        num_tokens, logprob_mean, logprob_min, probability: as in `Completion`; constants have no tokens and
            probability 1.
    """

    path: str
    value: Any
    text: str = ""
    status: ValueStatus = "value"
    num_tokens: int = 0
    logprob_mean: float | None = None
    logprob_min: float | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class JsonResult:
    """Answer for one document.

    Attributes:
        data: plain JSON that fits the schema, unless there are problems; None if the document was not decoded.
        problems: parts that do not fit, by path, and why; if empty, `data` is valid.
        fields: by path, in the order in which they were asked.
        num_prompt_tokens: of the document with all around it, and of the text before each value.
        num_output_tokens: of all values.
    """

    data: Any
    problems: tuple[Problem, ...] = ()
    fields: Mapping[str, FieldAnswer] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0


OnField = Callable[[int, FieldAnswer], None]
"""Callback for a field as soon as its value has ended, with the document's number and the answer.

It is called in a thread of the engine that all results go through, and must not block.
"""


class JsonFuture(Future[list[JsonResult]]):
    """Results of one `Engine.submit_json`, one per document, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._running: dict[int, CompletionFuture] = {}
        self._is_settled = False

    def abandon(self) -> None:
        """Drop documents that are not decoded yet; if there are any, the future fails with CancelledError."""
        self.settle(error=CancelledError())
        with self._lock:
            running = list(self._running.values())
        for future in running:
            future.abandon()

    def settle(self, results: list[JsonResult] | None = None, error: BaseException | None = None) -> None:
        """Set results or an error, unless it is settled already."""
        with self._lock:
            if self._is_settled:
                return
            self._is_settled = True
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(results or [])

    def watch(self, futures: Iterable[tuple[int, CompletionFuture]]) -> bool:
        """Register the futures being decoded, by document number, so that `abandon` can drop them. Return False if it
        is settled already.
        """
        with self._lock:
            self._running.update(futures)
            return not self._is_settled


def pointer(path: Iterable[str | int]) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
