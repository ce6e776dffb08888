"""Actors of the larger model with something wrong. In a module of their own: Ray's workers import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from hpd_core import Record
from pipelines.job.context import JobContext
from pipelines.job.ray_stages import DecodeAgain


class _Engine:
    """Passes everything on to a real engine, after `before`."""

    def __init__(self, engine: Any, before: Any) -> None:
        self._engine, self._before = engine, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, records: Sequence[Record], *arguments: Any) -> Any:
        if any(record.fields["title"] == "poison" for record in records):
            self._before()
        return self._engine.submit(records, *arguments)


class _WrappedAgain(DecodeAgain):
    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        load = self._decoder._load

        def load_and_wrap() -> None:
            load()
            self._decoder._engine = _Engine(self._decoder._engine, self.before)  # type: ignore[assignment]

        # Also when it is loaded again: what is wrong with it stays wrong.
        self._decoder._load = load_and_wrap  # type: ignore[method-assign]
        self._decoder._engine = _Engine(self._decoder._engine, self.before)  # type: ignore[assignment]

    def before(self) -> None:
        raise NotImplementedError


class RaisingAgain(_WrappedAgain):
    """The larger model's engine raises whenever a certain record comes."""

    def before(self) -> None:
        raise MemoryError("out of memory")


class DyingAgain(_WrappedAgain):
    """The larger model's process is killed whenever a certain record comes."""

    def before(self) -> None:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
