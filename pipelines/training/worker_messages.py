"""Messages between the driver of a training and its workers, besides lines for the user.

A worker says what it is at. The driver posts a request to stop, which every worker sees within a second. A signal kills
nothing: the worker finishes its step (or aborts its validation), keeps a checkpoint and returns.

Ray's actors that pass messages on import all that this module imports, before they deliver anything: no torch.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import ray

Wish = Literal["checkpoint", "at once"]
"""Stop request: keep a checkpoint first, or stop at once because another driver continues or a worker has failed."""

_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True)
class Begins:
    """Stage that a worker begins before its first step."""

    what: str


@dataclass(frozen=True, slots=True)
class TrainingRuns:
    """Begin of the training loop. From here on there is a state worth a checkpoint."""


@ray.remote(num_cpus=0)
class _Board:
    """Ray actor that holds the request for all workers, including restarted ones."""

    def __init__(self) -> None:
        self._wish: Wish | None = None

    def put(self, wish: Wish) -> None:
        self._wish = wish

    def read(self) -> Wish | None:
        return self._wish


class StopBoard:
    """Driver's side of the stop request. It is passed to the workers with their arguments."""

    def __init__(self) -> None:
        self._board: Any = _Board.remote()  # type: ignore[attr-defined]

    def put(self, wish: Wish) -> None:
        """Post a request; it replaces an earlier one."""
        ray.get(self._board.put.remote(wish))

    def read(self) -> Wish | None:
        """Return the current request, or None."""
        wish: Wish | None = ray.get(self._board.read.remote())
        return wish


class StopWatch:
    """Worker's side of the stop request. It polls the board in a thread, so that polling does not delay a step.

    Attributes:
        wish: request at the last poll, or None.
    """

    def __init__(self, board: StopBoard, deadline: float | None) -> None:
        """Read the board once. `deadline`: end of the time limit, in seconds since the epoch; None: no limit."""
        self.wish: Wish | None = board.read()
        self._board, self._deadline = board, deadline
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stop-watch", daemon=True)

    def __enter__(self) -> StopWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def is_stopped(self) -> bool:
        """Return whether the training is to stop now."""
        return self.wish is not None

    @property
    def has_deadline(self) -> bool:
        """Whether there is a time limit."""
        return self._deadline is not None

    def is_time_up(self, reserve: float) -> bool:
        """Return whether at most `reserve` seconds are left."""
        return self._deadline is not None and time.time() + reserve >= self._deadline

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN_LOOKS):
            self.wish = self._board.read()
