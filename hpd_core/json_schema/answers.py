"""What comes of `Engine.extract_json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from hpd_core.completion import CompletionFuture
from hpd_core.types import ValueStatus


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a part of the answer: `path` is its JSON pointer, "" is all of it."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """The answer to one field.

    Attributes:
        path: JSON pointer, as "/buyer/name" or "/lines/0/price".
        value: plain JSON; None unless the status is "value".
        text: as the model wrote it. The keys of a list's items were written in one value, which each of them shows.
        status: "value", "absent" (null), "truncated", "invalid" or "error".
        num_tokens, logprob_mean, logprob_min, probability: as `Completion` has them; of what is constant none.
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
    """The answer for one document.

    Attributes:
        data: plain JSON that fits the schema, unless there are problems; None where the document was not decoded.
        problems: what does not fit, by path, and why; empty: `data` is valid.
        fields: by path, in the order in which they were asked.
        num_prompt_tokens: of the document with all around it, and of what stands before each value.
        num_output_tokens: of all values.
    """

    data: Any
    problems: tuple[Problem, ...] = ()
    fields: Mapping[str, FieldAnswer] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0


OnField = Callable[[int, FieldAnswer], None]
"""Told of a field as soon as its value has ended: the document's number, and the answer.

It is called in a thread of the engine that all results go through, and must not block.
"""


class JsonFuture(Future[list[JsonResult]]):
    """The results of one `Engine.submit_json`, a document each, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._running: dict[int, CompletionFuture] = {}
        self._is_settled = False

    def abandon(self) -> None:
        """Drops what is not decoded yet; if anything is, the future fails with CancelledError."""
        self.settle(error=CancelledError())
        with self._lock:
            running = list(self._running.values())
        for future in running:
            future.abandon()

    def settle(self, results: list[JsonResult] | None = None, error: BaseException | None = None) -> None:
        """Gives it results or an error, unless it has some."""
        with self._lock:
            if self._is_settled:
                return
            self._is_settled = True
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(results or [])

    def watch(self, futures: Iterable[tuple[int, CompletionFuture]]) -> bool:
        """Takes what is decoded now, by the document's number, to give it up in time. False: it is given up already."""
        with self._lock:
            self._running.update(futures)
            return not self._is_settled


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
