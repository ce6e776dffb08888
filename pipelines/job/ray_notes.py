"""Notes on the progress of a run's engines on Ray: each engine writes one, the driver shows them.

Notes are kept in Ray's own key-value store: it needs no extra process, and readers cannot slow an engine down.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable

import psutil
import ray
from ray.experimental import internal_kv

from pipelines.console.progress import Watched
from pipelines.job.loading_note import FIRST_SHARDS

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
