"""The stages without Ray, one after the other in this process: what each costs, and where its time goes."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pipelines.job import ray_stages
from pipelines.job.context import pack
from pipelines.job.preflight import PlannedJob
from pipelines.job.rounds import job_context
from pipelines.store.ledger import Ledger

STAGES = ("prepare", "decode", "finish", "commit")


@dataclass(slots=True)
class StageCosts:
    """CPU seconds (user and system, all threads) and bytes handed on, summed over `num_products`."""

    num_products: int = 0
    num_shards: int = 0
    cpu_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    message_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))

    @property
    def milliseconds_per_product(self) -> dict[str, float]:
        """CPU milliseconds, by stage."""
        return {name: 1000 * seconds / max(1, self.num_products) for name, seconds in self.cpu_seconds.items()}


def run_stages(job: PlannedJob, num_shards: int, profile: Path | None = None) -> StageCosts:
    """Takes the plan's first shards through all four stages.

    The first shard is not counted: it loads tokenizer and engine. The output folder must be a new one. `profile`: a
    file for cProfile's table, functions by their own time; measuring costs more than twice the time.
    """
    context = job_context(job, Ledger(job.output, "alone"))
    decode = ray_stages.Decode(context)
    costs, profiler = StageCosts(), cProfile.Profile()
    steps: dict[str, Callable[[pa.Table], pa.Table]] = {
        "prepare": lambda message: ray_stages.prepare(message, context),
        "decode": decode,
        "finish": lambda message: ray_stages.finish(message, context),
        "commit": lambda message: ray_stages.commit(message, context),
    }
    for number, shard in enumerate(job.plan.shards[: num_shards + 1]):
        message = ray_stages.wrap(shard.id, pack(shard))
        for name, step in steps.items():
            started = time.process_time()
            with _profiled(profiler, profile is not None and number > 0):
                message = step(message)
            if number:
                costs.cpu_seconds[name] += time.process_time() - started
                costs.message_bytes[name] += message.nbytes
        if number:
            costs.num_products += shard.num_rows
            costs.num_shards += 1
    if profile is not None:
        with profile.open("w", encoding="utf-8") as file:
            pstats.Stats(profiler, stream=file).sort_stats("tottime").print_stats(60)
    return costs


@contextmanager
def _profiled(profiler: cProfile.Profile, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
