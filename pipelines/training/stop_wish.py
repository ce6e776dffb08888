"""How a training is stopped before its end: the driver wishes it, every worker sees the wish within a second.

A signal kills nothing: the worker ends its step (or gives its validation up), keeps a checkpoint and returns.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Literal

import ray

Wish = Literal["checkpoint", "at once"]
"""Keep a checkpoint first; or leave everything as it is, because another driver goes on or a worker has failed."""

_SECONDS_BETWEEN_LOOKS = 0.5


@ray.remote(num_cpus=0)
class _Board:
    """Where the wish hangs, for all workers, those that are started again included."""

    def __init__(self) -> None:
        self._wish: Wish | None = None

    def put(self, wish: Wish) -> None:
        self._wish = wish

    def read(self) -> Wish | None:
        return self._wish


class StopBoard:
    """The driver's side. It goes with the workers' arguments."""

    def __init__(self) -> None:
        self._board: Any = _Board.remote()  # type: ignore[attr-defined]

    def put(self, wish: Wish) -> None:
        """Wishes it; the later one counts."""
        ray.get(self._board.put.remote(wish))

    def read(self) -> Wish | None:
        """What is wished for, if anything."""
        wish: Wish | None = ray.get(self._board.read.remote())
        return wish


class StopWatch:
    """A worker's side: looks at the board in a thread of its own, so that looking costs a step nothing.

    Attributes:
        wish: as it was at the last look.
    """

    def __init__(self, board: StopBoard, deadline: float | None) -> None:
        """`deadline`: in seconds since the epoch, when time is up; None: never."""
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
        """Whether the training is to end now."""
        return self.wish is not None

    @property
    def has_deadline(self) -> bool:
        """Whether the time is limited."""
        return self._deadline is not None

    def is_time_up(self, reserve: float) -> bool:
        """Whether less than `reserve` seconds are left."""
        return self._deadline is not None and time.time() + reserve >= self._deadline

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN_LOOKS):
            self.wish = self._board.read()
