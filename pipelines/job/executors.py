"""Interface of `LocalExecutor` and `RayExecutor`, which take shards through the stages of a run."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rich.console import Console

from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.console.progress import Watched
from pipelines.job.carryover import CarryOver
from pipelines.job.context import CarryOverRef, JobContext

Commits = Generator[tuple[int, dict[str, Any]], None, None]
"""Numbers of committed shards, with their counts and metrics."""


class Executor(Protocol):
    """Interface that runs prepare, decode, finish and commit over shards."""

    def open(self, console: Console) -> AbstractContextManager[None]:
        """Start what the stages need, for a block. Raises `UsageError` or `RunError`."""

    def watch(self) -> Watched:
        """Return the present progress; called repeatedly by another thread."""

    def describe_engine(self, config: JobConfig) -> dict[str, Any]:
        """Load the engine of a job where it will run, and return its description."""

    def share(self, run_id: str, found: CarryOver) -> CarryOverRef:
        """Make what is carried over from run `run_id` known to all stages."""

    def commit_shards(self, shards: Sequence[Shard], job: JobContext) -> Commits:
        """Run all stages; yield each committed shard with its counts and metrics, in any order."""

    def explain(self, error: BaseException) -> Exception | None:
        """Return the `UsageError` or `RunError` to show in place of `error`; None if it is a bug of ours."""
