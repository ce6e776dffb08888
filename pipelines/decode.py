"""Stage 2, on GPUs: an actor with one engine, and several shards in it at once.

Ray Data calls an actor from `actors.max_in_flight` threads. Each thread hands its shard to the same engine
and waits, so the hardware does not drain between shards.

A shard that fails is tried again, alone and in a fresh engine, so that it takes no neighbour down and none
takes it down. Each try is on record before it begins, so one that kills the process counts as well; one that
only waited for its turn while another killed the process does not.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from dataclasses import asdict, replace
from typing import Any

import ray
import torch

from hpd_core import AutoregressiveBaseline, Engine, HPDError
from pipelines.cluster import num_cpus
from pipelines.config import JobConfig
from pipelines.context import DecodedShard, JobContext, PreparedShard
from pipelines.errors import UsageError
from pipelines.gate import Gate
from pipelines.ledger import Attempt

logger = logging.getLogger(__name__)


def load_engine(config: JobConfig) -> Engine | AutoregressiveBaseline:
    """The decoder that the job asks for. Raises `HPDError` with a message for the user."""
    kind = AutoregressiveBaseline if config.decoding == "ar" else Engine
    return kind.from_pretrained(config.model, config.engine, config.adapter)


class Decoder:
    """One engine and the shards that go through it. Safe to call from several threads."""

    def __init__(self, job: JobContext) -> None:
        """Loads the engine. Raises `UsageError` if it cannot be loaded or does not fit the run."""
        self._job = job
        self._ledger = job.ledger
        self._gate = Gate()
        self._has_failed = False
        # Ray gives its workers one OpenMP thread per reserved CPU; an engine without a GPU wants its share of the node.
        actors = job.config.actors
        torch.set_num_threads(actors.num_threads or max(1, num_cpus() // actors.max))
        self._load()

    def _load(self) -> None:
        try:
            self._engine = load_engine(self._job.config)
        except HPDError as error:
            raise UsageError(str(error)) from error
        self._description = dict(self._engine.describe())
        self._ledger.check_engine(self._description)
        self._unreported_load_seconds = float(self._engine.load_seconds)

    def decode(self, prepared: PreparedShard) -> DecodedShard:
        """The shard with its answers, or with the reason why it was given up. Never raises for its content."""
        while True:
            attempt = self._ledger.next_attempt(prepared.shard.id)
            if attempt.number_in_session > self._job.config.retries.max_attempts:
                return self._give_up(prepared, attempt)
            try:
                return self._try(prepared, attempt)
            except Exception as error:
                logger.warning("shard %d, attempt %s: %s", prepared.shard.id, attempt.id, error, exc_info=True)
                self._has_failed = True
                self._ledger.fail_attempt(prepared.shard.id, attempt, f"{type(error).__name__}: {error}")

    def _try(self, prepared: PreparedShard, attempt: Attempt) -> DecodedShard:
        started = time.perf_counter()
        suspect = attempt.number_in_session > 1 or self._has_failed
        with self._gate.hold(alone=suspect) as idle_seconds:
            self._ledger.begin_attempt(prepared.shard.id, attempt)
            if suspect and self._has_failed:
                self._reload()
            records = [record.record for record in prepared.records]
            future = self._engine.submit(records, self._job.schemas, prepared.document_ids)
            results = future.result()
            metrics = asdict(future.metrics)
            load_seconds, self._unreported_load_seconds = self._unreported_load_seconds, 0.0
        if len(results) != len(records):
            raise RuntimeError(f"{len(records)} records went into the engine, {len(results)} came out")
        timing = {
            "load_seconds": load_seconds,
            "idle_seconds": idle_seconds,
            "wall_seconds": time.perf_counter() - started,
        }
        return self._decoded(prepared, results, None, attempt, metrics | timing)

    def _give_up(self, prepared: PreparedShard, attempt: Attempt) -> DecodedShard:
        reason = attempt.last_error or "the process died while it decoded the shard"
        tries = attempt.number_in_session - 1
        last = replace(attempt, number=attempt.number - 1)  # this one is not made
        return self._decoded(prepared, [], f"given up after {tries} attempts; the last: {reason}", last, {})

    def _decoded(
        self, prepared: PreparedShard, results: Any, failure: str | None, attempt: Attempt, metrics: dict[str, Any]
    ) -> DecodedShard:
        context = ray.get_runtime_context() if ray.is_initialized() else None
        place = {"node_id": context.get_node_id(), "actor_id": context.get_actor_id()} if context else {}
        return DecodedShard(prepared, results, failure, attempt.id, attempt.number, self._description | place, metrics)

    def _reload(self) -> None:
        """A failed engine may have lost its state. Where not even a new one starts (a dead CUDA context stays
        dead as long as the process), the process ends and Ray starts another."""
        try:
            self._engine.close()
            # Two models at once may be more than the device holds.
            del self._engine
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._load()
        except Exception:
            logger.exception("the engine does not start again; the process ends and Ray replaces it")
            os._exit(1)
        self._has_failed = False

    def close(self) -> None:
        """Frees the engine."""
        self._engine.close()
