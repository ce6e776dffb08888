"""Access to an actor's engine: shared by several shards, or exclusive for a suspect one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class EngineGate:
    """Lock with shared and exclusive holders; a waiting exclusive holder is let in before new shared ones."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._num_inside = 0
        self._alone = False
        self._num_waiting_alone = 0
        self._idle_since = time.perf_counter()

    @property
    def num_inside(self) -> int:
        """Number of current holders."""
        return self._num_inside

    @contextmanager
    def hold(self, *, alone: bool) -> Iterator[float]:
        """Wait for the gate; yield the seconds for which it had no holder before."""
        with self._condition:
            if alone:
                self._num_waiting_alone += 1
                self._condition.wait_for(lambda: self._num_inside == 0)
                self._num_waiting_alone -= 1
                self._alone = True
            else:
                self._condition.wait_for(lambda: not self._alone and self._num_waiting_alone == 0)
            idle = time.perf_counter() - self._idle_since if self._num_inside == 0 else 0.0
            self._num_inside += 1
        try:
            yield idle
        finally:
            with self._condition:
                self._num_inside -= 1
                self._alone = False
                if self._num_inside == 0:
                    self._idle_since = time.perf_counter()
                self._condition.notify_all()
