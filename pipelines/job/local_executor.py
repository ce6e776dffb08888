"""A run in one process: what each shard goes through, from its rows to its committed tables.

    a thread     prepare_shard    reads, checks and tokenizes the rows
    the same     decode           gives the records to the engine, whose own thread decodes all shards in it together;
                                  with a cascade, what is in doubt goes to the larger model's engine, too
    main thread  finish_shard     makes tables of the answers
    the same     commit_shard     writes them; the first attempt to write the shard's manifest wins

There is one thread more than shards in the engine, so that the next one is prepared meanwhile. A record that kills the
process ends the run: Ray, which has other processes, searches for it (`make_executor` in driver.py).
"""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipelines import errors
from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.console.json_logs import log_to_file
from pipelines.console.progress import Watched
from pipelines.job.carryover import CarryOver
from pipelines.job.commit_stage import Finished, commit_shard
from pipelines.job.context import CarryOverRef, DecodedShard, JobContext
from pipelines.job.executors import Commits
from pipelines.job.finish_stage import finish_shard
from pipelines.job.loading_note import FIRST_SHARDS, loading_note
from pipelines.job.prepare_stage import prepare_shard
from pipelines.job.same_code import code_digest
from pipelines.job.second_look import look_again

if TYPE_CHECKING:
    from pipelines.job.decode_stage import ShardDecoder


class LocalExecutor:
    """Runs the stages in this process, with one engine of each model."""

    def __init__(self, config: JobConfig) -> None:
        self._said = loading_note(config)
        self._decoder: ShardDecoder | None = None

    def open(self, console: Console) -> AbstractContextManager[None]:
        """Start nothing: the engine is loaded when there are shards for it."""
        return nullcontext()

    def watch(self) -> Watched:
        """Return what the engine is at."""
        return Watched(self._said, 0 if self._decoder is None else self._decoder.num_decoded)

    def describe_engine(self, config: JobConfig) -> dict[str, Any]:
        """Load the engine, return what it is, and close it."""
        from pipelines.job.decode_stage import describe_engine

        return describe_engine(config, code_digest())

    def share(self, run_id: str, found: CarryOver) -> CarryOverRef:
        """Return a reference to the object itself."""
        return CarryOverRef(run_id, lambda: found)

    def explain(self, error: BaseException) -> Exception | None:
        """Return the `UsageError` or `RunError` to show in place of `error`; None if it is a bug of ours."""
        return errors.explain(error)

    def commit_shards(self, shards: Sequence[Shard], job: JobContext) -> Commits:
        """Take the shards through all stages, `actors.max_in_flight` of them in the engine at once."""
        from pipelines.job.decode_stage import ShardDecoder  # imports torch, which takes seconds

        with ExitStack() as stack:
            stack.enter_context(log_to_file(job.run_id))
            in_flight = job.config.actors.max_in_flight
            threads = ThreadPoolExecutor(in_flight + 1, "shard")
            stack.callback(threads.shutdown, cancel_futures=True)  # after the engines: those that are closed answer
            decoder = self._decoder = stack.enter_context(closing(ShardDecoder(job)))
            larger = None
            if job.config.cascade is not None:
                larger = stack.enter_context(closing(ShardDecoder(job.larger)))
            self._said = FIRST_SHARDS
            # What the models are made of is there to stay: garbage collections need not go through it.
            gc.collect()
            gc.freeze()
            stack.callback(gc.unfreeze)
            # One reader at a time; as many shards in an engine as configured.
            reading, decoding = threading.Lock(), threading.BoundedSemaphore(in_flight)

            def answer(shard: Shard) -> DecodedShard:
                with reading:
                    prepared = prepare_shard(shard, job)
                with decoding:
                    decoded = decoder.decode(prepared)
                if larger is None:
                    return decoded
                with reading:
                    doubted = look_again(decoded, job)
                with decoding:
                    return larger.decode_again(doubted)

            waiting, under_way = iter(shards), set[Future[DecodedShard]]()
            while True:
                next_shards = itertools.islice(waiting, in_flight + 1 - len(under_way))
                under_way |= {threads.submit(answer, shard) for shard in next_shards}
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    decoded = future.result()
                    finished = Finished(decoded.attempt_id, *finish_shard(decoded, job))
                    manifest, _ = commit_shard(decoded.prepared.shard.id, finished, job)
                    yield manifest["shard"], manifest
