"""What it takes to plan a job over one CSV file: the time, and the memory of a process that does nothing else."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pipelines.config.extraction import JobConfig
from pipelines.errors import RunError


@dataclass(frozen=True, slots=True)
class PlanningCost:
    """A file that was read from its beginning on, kept, and cut into shards.

    Attributes:
        bytes_before: resident memory once everything was imported; `peak_bytes`: the highest from then on.
        again_seconds: planning once more, from what was kept.
    """

    num_rows: int
    num_bytes: int
    seconds: float
    again_seconds: float
    bytes_before: int
    peak_bytes: int


def plan_csv(config: JobConfig, num_bytes: int) -> PlanningCost:
    """Plans the job in a process of its own, with a cache of its own. Raises `RunError` if that process fails."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="hpd-load-cache-") as cache:
        process = context.Process(target=_plan, args=(config, num_bytes, cache, sender))
        process.start()
        sender.close()
        try:
            cost: PlanningCost = receiver.recv()
        except EOFError:
            raise RunError("the process that plans has failed") from None
        finally:
            process.join()
    return cost


def _plan(config: JobConfig, num_bytes: int, cache: str, sender: object) -> None:
    from pipelines.job.preflight import plan_job

    os.environ["HPD_CACHE"] = cache
    # From here on the highest memory is that of planning, not of imports.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    started = time.perf_counter()
    job = plan_job(config)
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    plan_job(config)
    again = time.perf_counter() - started
    sender.send(PlanningCost(job.plan.num_rows, num_bytes, seconds, again, before, _peak()))  # type: ignore[attr-defined]


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
