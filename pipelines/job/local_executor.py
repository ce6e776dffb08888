"""Run of a job in one process, with the stages of each shard from its rows to its committed tables.

    a thread     prepare_shard    reads, checks and tokenizes the rows
    the same     decode           gives the records to the engine, whose own thread decodes all shards in it together;
                                  with a cascade, doubtful answers go to the larger model's engine, too
    main thread  finish_shard     makes tables of the answers
    the same     commit_shard     writes them; the first attempt to write the shard's manifest wins

There is one thread more than shards in the engine, so that the next one is prepared meanwhile. A record that kills the
process ends the run: Ray, which has other processes, searches for it (`make_executor` in job_run.py).
"""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipelines import errors
from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.console.exit_codes import WAITING_THREADS
from pipelines.console.progress import Watched, log_to_file
from pipelines.job.carryover import CarryOver
from pipelines.job.context import CarryOverRef, DecodedShard, JobContext, code_digest
from pipelines.job.finish_stage import commit_shard, finish_shard, look_again
from pipelines.job.prepare_stage import prepare_shard

if TYPE_CHECKING:
    from pipelines.job.decode_stage import ShardDecoder

_SECONDS_TO_CLOSE = 30.0


class LocalExecutor:
    """Executor: prepares, decodes, finishes and commits shards, in this process, with one engine of each model."""

    def __init__(self, config: JobConfig) -> None:
        self._said = loading_note(config)
        self._decoder: ShardDecoder | None = None
        self._answered: dict[int, int] = {}  # records of shards that are decoded and not committed

    def open(self, console: Console) -> AbstractContextManager[None]:
        """Start nothing: the engine is loaded when there are shards for it."""
        return nullcontext()

    def watch(self) -> Watched:
        """Return the progress of the engine."""
        decoder = self._decoder
        in_engine = 0 if decoder is None else decoder.num_decoded
        return Watched(self._said, in_engine + sum(list(self._answered.values())))

    def describe_engine(self, config: JobConfig) -> dict[str, Any]:
        """Load the engine, return its description, and close it."""
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
            threads = ThreadPoolExecutor(in_flight + 1, WAITING_THREADS)
            decoders: list[ShardDecoder] = []
            stack.callback(self._end, decoders, threads)
            for each in [job] if job.config.cascade is None else [job, job.larger]:
                decoders.append(ShardDecoder(each))
            self._decoder, self._said = decoders[0], FIRST_SHARDS
            # What the models are made of is there to stay: garbage collections need not go through it.
            gc.collect()
            gc.freeze()
            # One reader at a time; as many shards in an engine as configured.
            reading, decoding = threading.Lock(), threading.BoundedSemaphore(in_flight)

            def answer(shard: Shard) -> DecodedShard:
                with reading:
                    prepared = prepare_shard(shard, job)
                with decoding:
                    decoded = decoders[0].decode(prepared)
                    self._answered[shard.id] = len(prepared.records)
                if len(decoders) == 1:
                    return decoded
                with reading:
                    doubted = look_again(decoded, job)
                with decoding:
                    return decoders[1].decode_again(doubted)

            waiting, under_way = iter(shards), set[Future[DecodedShard]]()
            while True:
                next_shards = itertools.islice(waiting, in_flight + 1 - len(under_way))
                under_way |= {threads.submit(answer, shard) for shard in next_shards}
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    decoded = future.result()
                    manifest, _ = commit_shard(decoded.prepared.shard.id, finish_shard(decoded, job), job)
                    self._answered.pop(manifest["shard"], None)
                    yield manifest["shard"], manifest

    def _end(self, decoders: list[ShardDecoder], threads: ThreadPoolExecutor) -> None:
        """Close the engines, which lets the threads that wait for them end. An engine that hangs is left alone."""

        from pipelines.job.decode_stage import free_memory

        def close() -> None:
            for decoder in decoders:
                decoder.close()

        closing = threading.Thread(target=close, name="close-engines", daemon=True)
        closing.start()
        closing.join(_SECONDS_TO_CLOSE)
        threads.shutdown(wait=not closing.is_alive(), cancel_futures=True)
        self._decoder = None
        self._answered.clear()
        decoders.clear()
        free_memory()


FIRST_SHARDS = "first shards"
"""Message after an engine is made."""
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def loading_note(config: JobConfig) -> str:
    """Return the steps of making an engine: loading, and what is fetched or compiled first if it is not here yet."""
    from hpd_core.system.storage import cache_folder

    parts = [f"loading the model {config.model}"]
    if _is_elsewhere(config.model):
        parts.insert(0, f"fetching the model {config.model}")
    if config.engine.device.startswith("cuda"):
        parts.append("compiling its kernels")
    elif config.decoding == "hpd" and not any((cache_folder() / "native").glob("kernels-*.so")):
        parts.append("compiling kernels for this processor")
    return ", ".join(parts)


def _is_elsewhere(model: str) -> bool:
    """Return whether weights come over the network: neither local nor in the hub's cache."""
    from hpd_core.models.embedded import EMBEDDED_MODELS
    from hpd_core.models.model_files import local_place

    if model in EMBEDDED_MODELS or local_place(model) is not None:
        return False
    if "://" in model:
        return True
    from huggingface_hub import try_to_load_from_cache

    return not any(isinstance(try_to_load_from_cache(model, name), str) for name in _WEIGHTS)


Commits = Generator[tuple[int, dict[str, Any]], None, None]
"""Numbers of committed shards, with their counts and metrics."""
