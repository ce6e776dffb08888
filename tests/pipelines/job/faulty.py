"""Decode actors with something wrong, or something measured. In a module of their own: Ray's workers import it."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil

from hpd_core import EngineError, Record
from hpd_core.errors import EngineMemoryError
from hpd_core.requests.calls import ExtractionFuture
from pipelines.job import ray_stages
from pipelines.job.context import JobContext
from pipelines.job.ray_stages import Decode, DecodeAgain
from pipelines.store.folders import Folder


class _Engine:
    """Passes everything on to a real engine, after `before`; what that returns is an answer in the engine's place."""

    def __init__(self, engine: Any, before: Any) -> None:
        self._engine = engine
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, records: Sequence[Record], *arguments: Any) -> Any:
        instead = self._before(records)
        return self._engine.submit(records, *arguments) if instead is None else instead


class _Wrapped:
    """Wrap the engine of a `Decode` or a `DecodeAgain`."""

    _decoder: Any

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)  # type: ignore[call-arg]
        load = self._decoder._load

        def load_and_wrap() -> None:
            load()
            self._decoder._engine = _Engine(self._decoder._engine, self.before)

        # Also when it is loaded again: what is wrong with it stays wrong.
        self._decoder._load = load_and_wrap
        self._decoder._engine = _Engine(self._decoder._engine, self.before)

    def before(self, records: Sequence[Record]) -> Any:
        raise NotImplementedError


class _Dying(_Wrapped):
    """The process is killed when a certain record comes, after others have had time to queue up behind it."""

    def before(self, records: Sequence[Record]) -> None:
        if any(record.fields["title"] == "poison" for record in records):
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)


class _Raising(_Wrapped):
    """The engine raises whenever certain records come."""

    def before(self, records: Sequence[Record]) -> None:
        if any(record.fields["title"] == "poison" for record in records):
            raise MemoryError("out of memory")


class _WrappedDecode(_Wrapped, Decode):
    pass


class DyingDecode(_Dying, Decode):
    """The first model's."""


class RaisingDecode(_Raising, Decode):
    """The first model's."""


class RaisingAgain(_Raising, DecodeAgain):
    """The larger model's."""


class HangingDecode(_WrappedDecode):
    """The engine never answers where a certain record came."""

    def before(self, records: Sequence[Record]) -> Any:
        return ExtractionFuture() if any(record.fields["title"] == "poison" for record in records) else None


GO = "_go"


class HoldingDecode(_WrappedDecode):
    """Decodes four shards, and no other before a file in the output (GO) says so."""

    _numbers = itertools.count(1)

    def before(self, records: Sequence[Record]) -> None:
        end = time.monotonic() + 600
        if next(self._numbers) > 4:
            while not self._job.output.exists(GO) and time.monotonic() < end:
                time.sleep(0.05)


class BereavedDecode(_WrappedDecode):
    """One of the processes that share the model is killed, once in the life of the actor."""

    has_killed = False

    def before(self, records: Sequence[Record]) -> None:
        if not self.has_killed:
            self.has_killed = True
            [other] = [
                child for child in psutil.Process().children() if "hpd_core.parallel.ranks" in " ".join(child.cmdline())
            ]
            other.kill()


class CrampedDecode(_WrappedDecode):
    """As if a process that shares the model had too little memory for large steps."""

    def before(self, records: Sequence[Record]) -> Any:
        if self._decoder._engine.config.max_tokens_per_step <= 1024:
            return None
        failed = ExtractionFuture()
        error = EngineError("the engine failed while decoding")
        error.__cause__ = EngineMemoryError("rank 1 failed")
        failed.set_exception(error)
        return failed


def commit_elsewhere(batch: Any, job: JobContext) -> Any:
    """As on a machine with a folder of its own under the output's name."""
    return ray_stages.commit(batch, replace(job, output=Folder(f"{job.output.absolute_uri}-of-another-machine")))
