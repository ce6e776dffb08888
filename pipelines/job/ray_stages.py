"""Stages as Ray Data runs them: one shard is one dataset row, and a row is one block.

    spec -> prepare (tasks) -> decode (actors) -> finish (tasks) -> commit (tasks) -> counts

`cascade` adds two stages after the first answers: doubt (tasks), which selects what is asked again, and decode again,
the larger model's actors.

Each stage first checks whether the shard is committed already, by another attempt or another driver.

Notes on the progress of a run's engines on Ray: each engine writes one, the driver shows them.

Notes are kept in Ray's own key-value store: it needs no extra process, and readers cannot slow an engine down.
"""

from __future__ import annotations

import functools
import gc
import json
import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import psutil
import pyarrow as pa
import ray
import ray.data
from ray.experimental import internal_kv
from ray.util import metrics
from ray.util.annotations import RayDeprecationWarning

from hpd_core.errors import StorageError
from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.console.progress import Watched, log_as_json
from pipelines.errors import RunError, UsageError
from pipelines.job.context import MAX_TASK_RETRIES, DecodedShard, JobContext, check_code, code_digest, pack, unpack
from pipelines.job.finish_stage import commit_shard, finish_shard, look_again
from pipelines.job.local_executor import FIRST_SHARDS, loading_note
from pipelines.job.prepare_stage import prepare_shard
from pipelines.job.ray_cluster import engine_place, num_gpus_per_actor
from pipelines.job.table_rows import TOKEN_METRICS
from pipelines.quality.both_answers import larger_model

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

MAX_ACTOR_RESTARTS = 20
"""Times that one actor may come back; while the run gets on, new ones follow."""
_OBJECTS_BETWEEN_COLLECTIONS = 200_000
# A payload column is empty once its shard is committed.
_BLOCK = pa.schema([("shard", pa.int64()), ("payload", pa.large_binary())])


def describe_engine(config: JobConfig) -> dict[str, Any]:
    """Return the description of the actors' engines: load one where they will run, without decoding anything."""
    # Imports the engine.
    from pipelines.job import decode_stage

    wanted: dict[str, Any] = {
        "num_gpus": num_gpus_per_actor(config),
        "num_cpus": config.actors.num_cpus,
        "max_retries": MAX_TASK_RETRIES,
    }
    load: Any = ray.remote(**wanted)(decode_stage.describe_engine)
    description: dict[str, Any] = ray.get(load.remote(config, code_digest()))
    return description


def build_dataset(shards: list[Shard], job: JobContext, num_gpus: Sequence[float]) -> ray.data.Dataset:
    """Return the lazy pipeline over `shards`; each row it yields is a committed shard with its counts.

    Args:
        num_gpus: GPUs per actor, for each model.
    """
    config = job.config
    task: dict[str, Any] = {
        "batch_size": 1,
        "batch_format": "pyarrow",
        "num_cpus": 0.5,
        "max_retries": MAX_TASK_RETRIES,
    }

    def stage(work: Callable[[Any, JobContext], object]) -> dict[str, Any]:
        return task | {"fn_kwargs": {"work": work, "job": job}}

    dataset = shard_dataset(shards)
    with deprecated_options_allowed():
        pipeline = dataset.map_batches(run_stage, **stage(prepare_shard)).map_batches(
            Decode, **_actors(config, job, num_gpus[0])
        )
        if config.cascade is not None:
            actors = _actors(larger_model(config), job, num_gpus[1])
            pipeline = pipeline.map_batches(run_stage, **stage(look_again)).map_batches(DecodeAgain, **actors)
        whole: ray.data.Dataset = pipeline.map_batches(run_stage, **stage(finish_shard)).map_batches(
            commit, **task, fn_kwargs={"job": job}
        )
        return whole


def _actors(config: JobConfig, job: JobContext, num_gpus: float) -> dict[str, Any]:
    """Return the `map_batches` options for a pool of engines of the model that `config` names."""
    pool = ray.data.ActorPoolStrategy(
        min_size=config.actors.min,
        # Without a bound, Ray grows the pool with the cluster.
        max_size=None if config.actors.max == "auto" and num_gpus else config.actors.most(),
        max_tasks_in_flight_per_actor=config.actors.max_in_flight * 2,
        max_concurrent_calls_per_actor=config.actors.max_in_flight,
        enable_true_multi_threading=True,
    )
    return {
        "batch_size": 1,
        "batch_format": "pyarrow",
        "compute": pool,
        "num_gpus": num_gpus,
        "num_cpus": config.actors.num_cpus,
        "max_restarts": MAX_ACTOR_RESTARTS,
        # An actor that dies takes every shard in it along, and sends each back for another try.
        "max_task_retries": MAX_ACTOR_RESTARTS,
        "fn_constructor_kwargs": {"job": job},
    }


@contextmanager
def deprecated_options_allowed() -> Iterator[None]:
    """Silence deprecation warnings: Ray 2.60 has no named parameters yet for the numbers of retries and restarts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RayDeprecationWarning)
        yield


def shard_dataset(shards: Iterable[Shard]) -> Any:
    """Return a Ray dataset with one block per shard.

    `ray.data.from_arrow` would do the same, but runs a remote task on each block first. With 14,000 shards, it asks an
    autoscaling cluster for 14,000 CPUs. It takes 50 seconds, and 40 kB a shard of the driver's memory, before the
    first shard.
    """
    return ray.data.from_blocks([wrap(shard.id, pack(shard)) for shard in shards])


@functools.cache
def settle(stage: str) -> None:
    """Freeze the objects of imported libraries, so that the garbage collector skips them. Runs once a process and
    stage; `stage`: a process may have run others before, which import less.

    A shard makes hundreds of thousands of objects, and each collection that they trigger would visit all objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])


def begin(job: JobContext) -> None:
    """Set up a process of the run: start its logs and check its code. Raises as `check_code`."""
    log_as_json(job.run_id)
    check_code(job.code)


def told(stage: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Wrap a stage so that it raises an `OSError` of a file system as a `RunError`, whose text stays whole.

    Ray Data writes its advice into an error that it sends to the driver. In an `OSError` it replaces the file's name.
    """

    @functools.wraps(stage)
    def run(*args: Arguments.args, **options: Arguments.kwargs) -> Answer:
        try:
            return stage(*args, **options)
        except OSError as error:
            if error.errno is None or isinstance(error, StorageError):
                raise
            raise RunError(str(error)) from error

    return run


@told
def run_stage(batch: pa.Table, work: Callable[[Any, JobContext], object], job: JobContext) -> pa.Table:
    """Run a stage on one shard. Nothing is left to do of a shard that is committed already."""
    begin(job)
    shard, payload = unwrap(batch)
    if not payload or job.ledger.is_committed(shard):
        return wrap(shard, b"")
    message = wrap(shard, pack(work(unpack(payload), job)))
    # After the first shard, which has imported the stage's libraries.
    settle(work.__name__)
    return message


class Decode:
    """Stage 2, an actor. A problem with its engine is raised in a call, where Ray shows it to the driver."""

    def __init__(self, job: JobContext) -> None:
        part = self._part_of(job)
        note(job.run_id, restart_note() + loading_note(part.config))
        # torch takes seconds to import, and a process that runs other stages alone does without.
        from pipelines.job.decode_stage import ShardDecoder

        self._job = job
        self._problem: UsageError | RunError | None = None
        self._has_ended = threading.Event()
        try:
            begin(job)
            self._decoder = ShardDecoder(part, engine_place(part) if ray.is_initialized() else None)
            note(job.run_id, FIRST_SHARDS)
            arguments = (job.run_id, lambda decoder=self._decoder: decoder.num_decoded, self._has_ended)
            threading.Thread(target=note_decoded, args=arguments, name="notes", daemon=True).start()
        except (UsageError, RunError) as error:
            self._problem = error
        settle("decode")

    @told
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Decode one shard; called by several threads at once."""
        if self._problem is not None:
            raise self._problem
        shard, payload = unwrap(batch)
        if not payload or self._job.ledger.is_committed(shard):
            return wrap(shard, b"")
        decoded = self._decode(unpack(payload))
        note(self._job.run_id, FIRST_SHARDS, self._decoder.num_decoded)  # before its commit counts them
        return wrap(shard, pack(decoded))

    def _part_of(self, job: JobContext) -> JobContext:
        return job

    def _decode(self, message: Any) -> DecodedShard:
        return self._decoder.decode(message)

    def __del__(self) -> None:
        """Close the engine. Ray calls this when the actor ends normally."""
        self._has_ended.set()
        if self._problem is None and hasattr(self, "_decoder"):
            self._decoder.close()


class DecodeAgain(Decode):
    """Second decode stage of a cascade: an actor with the larger model."""

    def _part_of(self, job: JobContext) -> JobContext:
        return job.larger

    def _decode(self, message: Any) -> DecodedShard:
        return self._decoder.decode_again(message)


@told
def commit(batch: pa.Table, job: JobContext) -> pa.Table:
    """Run stage 4 on one shard: add its tables to the run, unless another attempt was first."""
    begin(job)
    shard, payload = unwrap(batch)
    manifest, is_ours = commit_shard(shard, unpack(payload) if payload else None, job)
    if is_ours:
        count_shard(job.run_id, manifest)
    summary = {"counts": manifest["counts"], "metrics": manifest["metrics"]}
    return pa.table({"shard": [shard], "summary": [json.dumps(summary)]})


def unwrap(batch: pa.Table) -> tuple[int, bytes]:
    """Return the shard's number and payload from a message that `wrap` has made."""
    if batch.num_rows != 1:
        raise RuntimeError(f"a batch must be one shard, Ray Data gave {batch.num_rows}")
    row: dict[str, Any] = batch.to_pylist()[0]
    return row["shard"], row["payload"]


def wrap(shard: int, payload: bytes) -> pa.Table:
    """Return a message between stages, as a table of one row."""
    return pa.Table.from_pylist([{"shard": shard, "payload": payload}], schema=_BLOCK)


logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_NOTES = 2.0


def note(run_id: str, said: str, num_decoded: int = 0) -> None:
    """Write the progress of this process's engine. Called in an actor; elsewhere it does nothing."""
    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or (actor := context.get_actor_id()) is None:
        return
    try:
        key, value = _key(context.get_job_id(), run_id, actor), json.dumps(Watched(said, num_decoded))
        internal_kv._internal_kv_put(key, value.encode())
    except Exception as error:  # a line less for who looks on, not an engine
        logger.debug("cannot note what is begun: %s", error)


def restart_note() -> str:
    """Return the reason why this engine is made again, as a prefix of its note; "" for the first time."""
    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or context.get_actor_id() is None or not context.was_current_actor_reconstructed:
        return ""
    used = f"{psutil.virtual_memory().percent:.0f}% of the memory is used, most by {', '.join(_largest_processes())}"
    return f"an engine's process died (Ray ends processes at 95% of the machine's memory; {used}), "


def _largest_processes() -> list[str]:
    """Return the three processes of this machine that take the most memory, each with its GB."""
    found = [each.info for each in psutil.process_iter(["name", "memory_info"]) if each.info["memory_info"]]
    largest = sorted(((each["memory_info"].rss, each["name"]) for each in found), reverse=True)[:3]
    return [f"{name} ({size / 2**30:.1f} GB)" for size, name in largest]


def note_decoded(run_id: str, num_decoded: Callable[[], int], stop: threading.Event) -> None:
    """Note the number of decoded products of open shards whenever it changes; runs in a thread of the actor."""
    noted = 0
    while not stop.wait(_SECONDS_BETWEEN_NOTES):
        if (number := num_decoded()) != noted:
            noted = number
            note(run_id, FIRST_SHARDS, number)


def forget_notes(run_id: str) -> None:
    """Remove the notes of a run's engines."""
    internal_kv._internal_kv_del(_key(ray.get_runtime_context().get_job_id(), run_id, ""), del_by_prefix=True)


def read_notes(run_id: str) -> Watched | None:
    """Return the progress of a run's engines; None before any has written a note."""
    keys = internal_kv._internal_kv_list(_key(ray.get_runtime_context().get_job_id(), run_id, ""))
    found = [json.loads(value) for key in keys if (value := internal_kv._internal_kv_get(key)) is not None]
    if not found:
        return None
    said = [each[0] for each in found]
    # The most advanced engine is what the first shards wait for; several that are at the same are counted.
    if FIRST_SHARDS in said:
        return Watched(FIRST_SHARDS, sum(each[1] for each in found))
    (what, count), *_ = Counter(said).most_common()
    return Watched(what if count == 1 else f"{count} engines {what}")


def _key(job_id: str, run_id: str, actor: str) -> str:
    """Return the key of an actor's note. Ray's job id tells sessions of a run apart."""
    return f"hpd-beginnings/{job_id}/{run_id}/{actor}"


# name: (what it counts, its tags beside `run`)
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "hpd_shards": ("shards committed", ()),
    "hpd_products": ("products extracted or carried over", ()),
    "hpd_carried_products": ("products all of whose answers were carried over from an earlier run", ()),
    "hpd_dead_letters": ("rows given up", ("reason",)),
    "hpd_values": ("attribute values", ("status",)),
    "hpd_tokens": ("tokens; those of a reused prefix were not forwarded", ("kind",)),
    "hpd_steps": ("forward passes", ("actor",)),
    "hpd_busy_seconds": ("seconds in which an engine computed; their rate is its busy share", ("actor",)),
    "hpd_load_seconds": ("seconds in which an engine loaded", ("actor",)),
    "hpd_asked_again": ("answers that a larger model was asked for again, by what became of them", ("outcome",)),
    "hpd_retries": ("tries of shards beyond the first", ()),
}


def count_shard(run_id: str, manifest: Mapping[str, Any]) -> None:
    """Increase the counters by one committed shard. `manifest`: the shard's, as `Ledger.manifest` returns it."""
    counts, metrics = manifest["counts"], manifest["metrics"]
    actor = manifest["engine"].get("actor_id") or ""

    def move(name: str, amount: float, **tags: str) -> None:
        if amount > 0:
            _counter(name).inc(amount, {"run": run_id, **tags})

    move("hpd_shards", 1)
    move("hpd_products", counts["products"])
    move("hpd_carried_products", counts["carried"]["products"])
    for reason, number in counts["reasons"].items():
        move("hpd_dead_letters", number, reason=reason)
    for status, number in counts["statuses"].items():
        move("hpd_values", number, status=status)
    for name in TOKEN_METRICS:
        move("hpd_tokens", metrics[name], kind=name.replace("_tokens", ""))
    larger = manifest.get("cascade", {"metrics": {}, "engine": {}})
    for name in ("num_steps", "busy_seconds", "load_seconds"):
        counter, second = f"hpd_{name.removeprefix('num_')}", larger["metrics"].get(name, 0)
        move(counter, metrics[name] - second, actor=actor)
        move(counter, second, actor=larger["engine"].get("actor_id") or "")
    asked = counts.get("cascade", {})
    for outcome in ("replaced", "kept"):
        move("hpd_asked_again", asked.get(outcome, 0), outcome=outcome)
    move("hpd_retries", metrics["retries"])


@functools.cache
def _counter(name: str) -> metrics.Counter:
    description, tags = _COUNTERS[name]
    return metrics.Counter(name, description, tag_keys=("run", *tags))
