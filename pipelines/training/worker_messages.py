"""Messages between the driver of a training and its workers, besides lines for the user.

A worker says what it is at. The driver posts a request to stop, which every worker sees within a second. A signal kills
nothing: the worker finishes its step (or aborts its validation), keeps a checkpoint and returns.

Ray's actors that pass messages on import all that this module imports, before they deliver anything: no torch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
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
class StopBoard:
    """Ray actor that holds the request for all workers, including restarted ones."""

    def __init__(self) -> None:
        self._wish: Wish | None = None

    def put(self, wish: Wish) -> None:
        """Post a request; it replaces an earlier one."""
        self._wish = wish

    def read(self) -> Wish | None:
        """Return the current request, or None."""
        return self._wish


class StopWatch:
    """Worker's side of the stop request: the board, asked twice a second at most."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._wish: Wish | None = None
        self._looked = -_SECONDS_BETWEEN_LOOKS

    def wish(self) -> Wish | None:
        """Return the current request, or None."""
        if time.monotonic() - self._looked >= _SECONDS_BETWEEN_LOOKS:
            self._wish, self._looked = ray.get(self._board.read.remote()), time.monotonic()
        return self._wish

    def is_stopped(self) -> bool:
        """Return whether the training is to stop now."""
        return self.wish() is not None
