"""Run of a job on Ray: Ray Data's actors and tasks take the shards through the stages (ray_stages.py)."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console

from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.console.progress import Watched
from pipelines.job.carryover import CarryOver
from pipelines.job.context import CarryOverRef, JobContext
from pipelines.job.local_executor import Commits, LocalExecutor
from pipelines.quality.both_answers import larger_model

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0


class RayExecutor(LocalExecutor):
    """Executor that runs the stages on the cluster at RAY_ADDRESS, or on a local Ray that ends with the run."""

    def __init__(self, config: JobConfig, run_id: str) -> None:
        self._config, self._run_id = config, run_id
        self._looked, self._watch = float("-inf"), Watched(_waiting_for_ray())

    @contextmanager
    def open(self, console: Console) -> Iterator[None]:
        """Join or start Ray for the block, and tell what it lacks for the job."""
        from pipelines.job.ray_cluster import num_gpus_per_actor, ray_cluster, resource_note

        models = [self._config] if self._config.cascade is None else [self._config, larger_model(self._config)]
        with ray_cluster(sum(model.actors.most() * model.actors.num_cpus for model in models)):
            if (note := resource_note(*((model.actors, num_gpus_per_actor(model)) for model in models))) is not None:
                console.print(note)
            # As at the start: a cluster that has lost its last GPU for now gets another.
            self._num_gpus = [num_gpus_per_actor(model) for model in models]
            yield

    def describe_engine(self, config: JobConfig) -> dict[str, Any]:
        """Load the engine on a node that can hold it, return its description, and close it."""
        from pipelines.job.ray_stages import describe_engine

        return describe_engine(config)

    def share(self, run_id: str, found: CarryOver) -> CarryOverRef:
        """Put the object into Ray's store, which holds it once per node for all processes there."""
        import ray

        get: Any = partial(ray.get, ray.put(found))
        return CarryOverRef(run_id, get)

    def commit_shards(self, shards: Sequence[Shard], job: JobContext) -> Commits:
        """Take the shards through Ray Data's pipeline."""
        from pipelines.job.ray_stages import build_dataset, forget_notes

        forget_notes(self._run_id)  # of actors that an earlier round has ended
        for row in build_dataset(list(shards), job, self._num_gpus).iter_rows():
            self._looked = 0.0  # what is committed now is not to be counted as decoded, too
            yield row["shard"], json.loads(row["summary"])

    def explain(self, error: BaseException) -> Exception | None:
        """Return the error to show, with the node that it is from; None if it is a bug of ours."""
        from pipelines.job.ray_cluster import explain

        return explain(error)

    def watch(self) -> Watched:
        """Return the progress of the engines. Asks Ray once a second at most."""
        now = time.monotonic()
        if now - self._looked > _SECONDS_BETWEEN_LOOKS:
            self._looked, self._watch = now, self._look()
        return self._watch

    def _look(self) -> Watched:
        # Ray takes seconds to import: what is not imported has not been started.
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return Watched(_waiting_for_ray())
        from pipelines.job.ray_stages import read_notes

        try:
            return read_notes(self._run_id) or Watched(self._place(ray.available_resources()))
        except Exception as error:  # its store may be away, as it is while Ray ends: a line less, not a run
            logger.debug("cannot look for what is begun: %s", error)
            return self._watch

    def _place(self, free: dict[str, float]) -> str:
        """Return what the run waits for before any note: a place for an engine, or its process."""
        from pipelines.job.ray_cluster import num_gpus_per_actor

        wanted = {"CPU": self._config.actors.num_cpus, "GPU": num_gpus_per_actor(self._config)}
        missing = [f"{count:g} {name}" for name, count in wanted.items() if free.get(name, 0.0) < count]
        place = f"place in the cluster ({', '.join(missing)})" if missing else "process"
        return f"waiting for an engine's {place}"


def _waiting_for_ray() -> str:
    """Return the message before Ray runs, with the cluster's address: it may not answer, and Ray tries for minutes."""
    address = os.environ.get("RAY_ADDRESS")
    return f"waiting for Ray at RAY_ADDRESS {address}" if address else "waiting for Ray"
