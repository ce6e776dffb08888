"""Counters for Prometheus, through Ray's own exporter: every node serves them, as `ray_hpd_...`.

They are increased when a shard is committed, by the one attempt that won, so that they add up to the tables.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ray.util.metrics import Counter

from pipelines.job.metrics_rows import TOKEN_METRICS

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
def _counter(name: str) -> Counter:
    description, tags = _COUNTERS[name]
    return Counter(name, description, tag_keys=("run", *tags))
