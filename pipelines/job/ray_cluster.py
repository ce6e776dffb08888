"""Connection to Ray, started or joined without its output, and translation of its failures."""

from __future__ import annotations

import logging
import math
import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from pipelines.config.extraction import JobConfig
from pipelines.config.operation import ActorConfig
from pipelines.console.exit_codes import heed_termination
from pipelines.errors import ProcessesDiedError, RunError, UsageError, causes, for_user
from pipelines.job.context import EnginePlace, JobContext

_ROOT = Path(__file__).resolve().parents[2]
_CORE_LOG_LEVEL = "RAY_BACKEND_LOG_LEVEL"
_NOT_IMPORTED = re.compile(r"No module named|ImportError: ")
_PLACE = re.compile(r"\(pid=\d+, ip=([^,)\s]+)")
# A worker takes seconds to import what the stages need. By default Ray ends one that has had nothing to do for a second
# if there are more than CPUs, and soon starts the next.
_IDLE_WORKERS = ("RAY_idle_worker_killing_time_threshold_ms", "600000")


@contextmanager
def ray_cluster(reserved_cpus: float) -> Iterator[None]:
    """Use Ray for the block: the one already joined, or the one at RAY_ADDRESS (`ray job submit` sets it).

    Otherwise start a local Ray, which ends with the block. `reserved_cpus`: CPUs held by the job's long-lived actors.
    """
    _quiet()
    if ray.is_initialized():
        yield
        return
    # Ray's C++ core writes to the driver's stderr, past `logging`: a warning for every actor that may restart.
    os.environ.setdefault(_CORE_LOG_LEVEL, "fatal")
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address := os.environ.get("RAY_ADDRESS"):
        _join(address, common)
    else:
        os.environ.setdefault(*_IDLE_WORKERS)
        # The actors, and at least one CPU for reading and writing beside them, even on the smallest machine.
        num_cpus = max(os.cpu_count() or 1, math.ceil(reserved_cpus) + 1)
        environment = {"env_vars": {**_worker_path(_ROOT), _CORE_LOG_LEVEL: "info"}}
        with _held_back_stderr():
            try:
                ray.init("local", num_cpus=num_cpus, include_dashboard=False, runtime_env=environment, **common)
            except (RuntimeError, OSError, RayError) as error:
                raise RunError(
                    f"Ray did not start on this machine ({' '.join(str(error).split())}). If it is busy, run the "
                    "same command again later, or set executor: local, which needs no Ray"
                ) from error
    heed_termination()
    try:
        yield
    finally:
        ray.shutdown()


def _join(address: str, options: dict[str, Any]) -> None:
    """Join the cluster at RAY_ADDRESS. Raises `UsageError` for another kind of address or version of Ray, `RunError` if
    nothing answers."""
    if "://" in address:
        raise UsageError(
            f"RAY_ADDRESS {address}: a job does not run through Ray's client or dashboard. On a machine of the cluster "
            "set it to auto or HEAD:6379; from elsewhere use `ray job submit --address http://HEAD:8265`"
        )
    try:
        with _held_back_stderr():
            ray.init(**options)
    except (RuntimeError, ValueError, OSError, RayError) as error:
        kind = UsageError if isinstance(error, ValueError) or "Version mismatch" in str(error) else RunError
        raise kind(f"cannot join the Ray cluster at RAY_ADDRESS {address}: {' '.join(str(error).split())}") from error


def _worker_path(root: Path) -> dict[str, str]:
    """Return the environment variable PYTHONPATH with which workers find the package in the folder `root`.

    Workers do not start in our folder with our path, so they would not find a checkout. An installed package needs no
    entry: its folder would come before Python's own library. That folder may belong to the Python under a virtual
    environment (--system-site-packages).
    """
    places = (sysconfig.get_path("purelib"), site.getusersitepackages(), *site.getsitepackages())
    installed = {Path(place).resolve() for place in places}
    folders = [*([] if root in installed else [str(root)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders)} if folders else {}


@contextmanager
def _held_back_stderr() -> Iterator[None]:
    """Hold back the stderr of all processes during the block; write it out on an error other than `RunError`."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except RunError:
            raise  # it says what is wrong
        except BaseException:
            held.seek(0)
            os.write(terminal, held.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def _quiet() -> None:
    # Our own progress is the one to watch; Ray's details stay in its log files.
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # What a stage raises is to be told apart; Ray's own exception around it does not carry it over to the driver.
    context.raise_original_map_exception = True
    # A model may load for long, and the search for a bad record commits nothing for long: our own limit is
    # retries.max_minutes.
    context.execution_no_progress_timeout_s = -1
    for name in ("ray", "ray.data", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def num_gpus_per_actor(config: JobConfig) -> float:
    """Return the GPUs an actor reserves: as configured, else `tensor_parallel` if the cluster has a GPU, else 0."""
    if config.actors.num_gpus is not None:
        return config.actors.num_gpus
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return float(config.engine.tensor_parallel) if resources.get("GPU", 0) >= 1 else 0.0


def engine_place(job: JobContext) -> EnginePlace:
    """Return the place of this actor's engine: its share of the node by GPUs, or an equal part without GPUs."""
    from hpd_core.system.device import num_cpus  # imports torch, which the driver does without

    context = ray.get_runtime_context()
    pools = [job.config.actors] if job.others is None else [job.config.actors, job.others]
    ids = {"node_id": context.get_node_id(), "actor_id": context.get_actor_id() or ""}
    nodes = [each["Resources"] for each in _live_nodes() if each["NodeID"] == ids["node_id"]]
    node: Mapping[str, float] = nodes[0] if nodes else {}
    taken: Mapping[str, float] = context.get_assigned_resources()  # type: ignore[no-untyped-call]
    # As many engines as the CPUs of this node hold, of the job's and of a cascade's other model.
    num_engines = sum(pool.most() for pool in pools)
    reserved = sum(pool.most() * pool.num_cpus for pool in pools)
    num_engines = max(1, min(num_engines, int(num_engines * node.get("CPU", 0.0) / reserved + 1e-6)))
    gpus, all_gpus = taken.get("GPU", 0.0), node.get("GPU", 0.0)
    share = min(1.0, gpus / all_gpus) if gpus and all_gpus else 1 / num_engines
    # A container may see more CPUs than its node has by Ray's count.
    cpus = min(num_cpus(), max(1, int(node["CPU"]))) if node.get("CPU") else num_cpus()
    threads = job.config.actors.num_threads or max(1, cpus // round(1 / share))
    return EnginePlace(share, threads, ids)


def resource_note(*pools: tuple[ActorConfig, float]) -> str | None:
    """Return a note if the present cluster cannot hold the engines, leaves no CPU beside them or has more GPUs than
    they take; None if it fits.

    It is only a note, because an autoscaling cluster may be adding nodes. `pools`: for each model, its actors and the
    GPUs of one actor, from `num_gpus_per_actor`.
    """
    wanted = sum(num_gpus * actors.min for actors, num_gpus in pools)
    num_gpus = max(num_gpus for _, num_gpus in pools)
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    if wanted > resources.get("GPU", 0.0):
        of_pools = " and ".join(f"actors.min {actors.min}, {gpus:g} an actor" for actors, gpus in pools)
        return (
            f"Note: {wanted:g} GPUs are wanted ({of_pools}), the "
            f"cluster has {resources.get('GPU', 0.0):g} now. If it does not grow, the job waits for ever."
            + (" Two models share a GPU with actors.num_gpus: 0.5 and room for both." if len(pools) > 1 else "")
        )
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    largest = max((node["Resources"].get("GPU", 0.0) for node in nodes if node["Alive"]), default=0.0)
    if num_gpus > largest:
        return (
            f"Note: an actor wants {num_gpus:g} GPUs of one node, the largest node has {largest:g} now. If no larger "
            f"one comes, the job waits for ever."
        )
    num_cpus = resources.get("CPU", 0.0)
    reserved = sum(actors.most() * actors.num_cpus for actors, _ in pools)
    if num_cpus and reserved > num_cpus - 0.5:
        return (
            f"Note: actors.max x actors.num_cpus = {reserved:g} reserves all {num_cpus:g} CPUs of the cluster as it is "
            f"now. Reading and writing need one too: if the cluster does not grow, the job waits for ever."
        )
    if any(actors.max == "auto" for actors, _ in pools):
        return None
    taken = sum(num_gpus * actors.most() for actors, num_gpus in pools)
    idle = resources.get("GPU", 0.0) - taken
    if not taken or idle < max(1.0, num_gpus):
        return None
    most = pools[0][0].max
    return f"Note: {idle:g} of the cluster's {idle + taken:g} GPUs will do nothing: raise actors.max, which is {most}."


def _without_advice(message: str) -> str:
    """Return an error's message without the advice that Ray Data has appended."""
    return message.split("\nFailed to apply UDF transform after ", maxsplit=1)[0]


def _missing(reason: str) -> UsageError | None:
    """Return the `UsageError` for a module that could not be imported; None if it is a bug of ours."""
    if len(_live_nodes()) > 1:
        return UsageError(
            f"a node of the cluster has not what the job needs ({reason}). All nodes need the same packages: the same "
            "image, or the same environment; a checkout reaches them by `ray job submit --working-dir .`"
        )
    lacking = re.search(r"No module named '(\w+)", reason)
    if lacking is None or lacking[1] in ("hpd_core", "pipelines"):
        return None
    return UsageError(f"this environment has not what the job needs ({reason}): install {lacking[1]} into it")


def explain(error: BaseException) -> Exception | None:
    """Return the `UsageError` or `RunError` that caused Ray's error, with the node if there are several; None if it is
    a bug of ours."""
    found = _explained(error)
    node = None if found is None else _node_of(error)
    return found if found is None or node is None else type(found)(f"{found} (said by node {node})")


def _node_of(error: BaseException) -> str | None:
    """Return the address of the node that an error comes from; None if it is unknown or there is only one node."""
    # An error that Ray has made of its cause's own class has the address in its stack trace alone.
    places = (_PLACE.search(str(cause)) for cause in causes(error) if isinstance(cause, RayTaskError))
    place = next(filter(None, places), None)
    return place[1] if place is not None and len(_live_nodes()) > 1 else None


def _live_nodes() -> list[dict[str, Any]]:
    """Return the nodes that are alive; an empty list if there is no cluster or it no longer answers."""
    with suppress(Exception):
        if not ray.is_initialized():
            return []
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return [node for node in nodes if node["Alive"]]
    return []


def _explained(error: BaseException) -> Exception | None:
    # A `RayTaskError` is often of its cause's own class as well, with the whole remote stack trace for its message.
    seen = [cause for cause in causes(error) if not isinstance(cause, RayTaskError)]
    for cause in seen:
        if isinstance(cause, ImportError):
            return _missing(str(cause))
        if (found := for_user(cause)) is not None:
            return type(found)(_without_advice(str(found.args[0]) if found.args else str(found)))
    system = [cause for cause in seen if isinstance(cause, RayError)]
    if system:
        lines = str(system[-1]).strip().splitlines() or [type(system[-1]).__name__]
        has_not_started = getattr(system[-1], "actor_init_failed", False)
        # Of an actor that did not start, the reason stands at the end of its stack trace.
        line = lines[-1] if has_not_started else lines[0]
        if _NOT_IMPORTED.search(line) and (missing := _missing(line)) is not None:
            return missing
        return ProcessesDiedError(f"Ray stopped the run: {line}")
    return None
