"""Where the stages of a run take place: in this process (local_executor.py), or on Ray (ray_executor.py)."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rich.console import Console

from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.console.progress import Watched
from pipelines.errors import UsageError
from pipelines.job.carryover import CarryOver
from pipelines.job.context import CarryOverRef, JobContext
from pipelines.job.preflight import PlannedJob
from pipelines.store.ledger import Ledger

FIRST_SHARDS = "first shards"
Commits = Generator[tuple[int, dict[str, Any]], None, None]
"""Numbers of committed shards, with their counts and metrics."""


class Executor(Protocol):
    """Runs prepare, decode, finish and commit over shards."""

    def open(self, console: Console) -> AbstractContextManager[None]:
        """Start what the stages need, for a block. Raises `UsageError` or `RunError`."""

    def watch(self) -> Watched:
        """Return what there is to tell now; called by another thread, again and again."""

    def describe_engine(self, config: JobConfig) -> dict[str, Any]:
        """Load the engine of a job where it will run, and return what it is."""

    def share(self, run_id: str, found: CarryOver) -> CarryOverRef:
        """Make what is carried over from run `run_id` known to all stages."""

    def commit_shards(self, shards: Sequence[Shard], job: JobContext) -> Commits:
        """Run all stages; yield each committed shard with its counts and metrics, in any order."""

    def explain(self, error: BaseException) -> Exception | None:
        """Return the `UsageError` or `RunError` to show in place of `error`; None if it is a bug of ours."""


def make_executor(job: PlannedJob, ledger: Ledger) -> Executor:
    """Return the executor that the job names, or the one that it needs.

    Raises:
        UsageError: the run was begun with a clustering that only Ray can end.
    """
    config = job.config
    if config.executor == "local" and not job.is_cut:
        raise UsageError("the run was begun with shards.cluster_by_category, which needs Ray: set executor to 'auto'")
    if config.executor == "local" or (config.executor == "auto" and not _wants_ray(job, ledger)):
        from pipelines.job.local_executor import LocalExecutor

        return LocalExecutor(config)
    from pipelines.job.ray_executor import RayExecutor

    return RayExecutor(config, job.plan.run_id)


def _wants_ray(job: PlannedJob, ledger: Ledger) -> bool:
    """Whether there is a cluster, or work for more than one process."""
    config = job.config
    if os.environ.get("RAY_ADDRESS") or config.cascade is not None or config.needs_ray is not None or not job.is_cut:
        return True
    # A record that kills its process is found by others that survive it.
    committed = ledger.committed()
    tries = (count for shard, count in ledger.num_tries().items() if shard not in committed)
    return max(tries, default=0) > config.retries.max_attempts
