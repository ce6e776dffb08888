"""What an extraction waits for before its first shard: its engines note it, the driver shows it.

It is kept in Ray's own key-value store: it costs no process, and whoever looks on cannot slow an engine down.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter

from pipelines.config.extraction import JobConfig

logger = logging.getLogger(__name__)

FIRST_SHARDS = "first shards"
_SECONDS_BETWEEN_LOOKS = 1.0
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def note(run_id: str, what: str) -> None:
    """Notes what the engine of this process is at. Called in an actor; elsewhere nobody would look."""
    import ray
    from ray.experimental import internal_kv

    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or (actor := context.get_actor_id()) is None:
        return
    try:
        internal_kv._internal_kv_put(_key(context.get_job_id(), run_id, actor), what.encode())
    except Exception as error:  # a line less for who looks on, not an engine
        logger.debug("cannot note what is begun: %s", error)


def loading(config: JobConfig) -> str:
    """What an engine is at while it is made, with what it fetches or compiles first where that is not here yet."""
    from hpd_core.system.user_cache import cache_folder

    parts = [f"loading the model {config.model}"]
    if _is_elsewhere(config.model):
        parts.insert(0, f"fetching the model {config.model}")
    if config.engine.device.startswith("cuda"):
        parts.append("compiling its kernels")
    elif config.decoding == "hpd" and not any((cache_folder() / "native").glob("kernels-*.so")):
        parts.append("compiling kernels for this processor")
    return ", ".join(parts)


def _is_elsewhere(model: str) -> bool:
    """Whether weights come over the network. What the hub has sent before lies in its cache."""
    from hpd_core.models.embedded import EMBEDDED_MODELS
    from hpd_core.models.local_folders import local_place

    if model in EMBEDDED_MODELS or local_place(model) is not None:
        return False
    if "://" in model:
        return True
    from huggingface_hub import try_to_load_from_cache

    return not any(isinstance(try_to_load_from_cache(model, name), str) for name in _WEIGHTS)


class Beginnings:
    """The driver's side: what is waited for now."""

    def __init__(self, config: JobConfig, run_id: str) -> None:
        self._config, self._run_id = config, run_id
        self._looked, self._said = float("-inf"), _waiting_for_ray()

    def __call__(self) -> str:
        """For a progress line. Asks Ray once a second at most."""
        now = time.monotonic()
        if now - self._looked > _SECONDS_BETWEEN_LOOKS:
            self._looked, self._said = now, self._look()
        return self._said

    def _look(self) -> str:
        # Ray takes seconds to import: what is not imported has not been started.
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return _waiting_for_ray()
        from ray.experimental import internal_kv

        try:
            keys = internal_kv._internal_kv_list(_key(ray.get_runtime_context().get_job_id(), self._run_id, ""))
            found = [value.decode() for key in keys if (value := internal_kv._internal_kv_get(key)) is not None]
            return _in_words(found) if found else self._place(ray.available_resources())
        except Exception as error:  # its store may be away, as it is while Ray ends: a line less, not a run
            logger.debug("cannot look for what is begun: %s", error)
            return self._said

    def _place(self, free: dict[str, float]) -> str:
        """Nothing is noted yet: an engine has no place, or its process starts."""
        from pipelines.job.ray_cluster import num_gpus_per_actor

        wanted = {"CPU": self._config.actors.num_cpus, "GPU": num_gpus_per_actor(self._config)}
        missing = [f"{count:g} {name}" for name, count in wanted.items() if free.get(name, 0.0) < count]
        place = f"place in the cluster ({', '.join(missing)})" if missing else "process"
        return f"waiting for an engine's {place}"


def _waiting_for_ray() -> str:
    """With the address of a cluster that is to be joined: nobody may be there, and Ray tries for minutes."""
    address = os.environ.get("RAY_ADDRESS")
    return f"waiting for Ray at RAY_ADDRESS {address}" if address else "waiting for Ray"


def _in_words(found: list[str]) -> str:
    """The most advanced engine is what the first shards wait for; several that are at the same are counted."""
    if FIRST_SHARDS in found:
        return FIRST_SHARDS
    (what, count), *_ = Counter(found).most_common()
    return what if count == 1 else f"{count} engines {what}"


def _key(job_id: str, run_id: str, actor: str) -> str:
    """Another session of the run is another job of Ray's."""
    return f"hpd-beginnings/{job_id}/{run_id}/{actor}"
