"""The Prometheus counters of two models add up to the shard, each engine's by its own actor."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pipelines.job import prometheus
from pipelines.job.metrics_rows import TOKEN_METRICS


class Recorder:
    def __init__(self, name: str, moved: Counter[tuple[str, ...]]) -> None:
        self.name, self.moved = name, moved

    def inc(self, amount: float, tags: dict[str, str]) -> None:
        self.moved[self.name, *(tags[key] for key in sorted(tags) if key != "run")] += amount  # type: ignore[assignment]


def test_each_engine_has_its_own_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: Counter[tuple[str, ...]] = Counter()
    monkeypatch.setattr(prometheus, "_counter", lambda name: Recorder(name, moved))
    sums: dict[str, Any] = {**dict.fromkeys(TOKEN_METRICS, 10), "num_steps": 9, "busy_seconds": 5.0}
    sums |= {"load_seconds": 3.0, "retries": 0}
    manifest = {
        "counts": {
            "products": 2,
            "carried": {"products": 0},
            "reasons": {},
            "statuses": {"value": 4},
            "cascade": {"asked": 3, "replaced": 2, "kept": 1},
        },
        "metrics": sums,
        "engine": {"actor_id": "small"},
        "cascade": {
            "engine": {"actor_id": "large"},
            "metrics": {"num_steps": 4, "busy_seconds": 2.0, "load_seconds": 1.0},
        },
    }
    prometheus.count_shard("run", manifest)
    assert (moved["hpd_steps", "small"], moved["hpd_steps", "large"]) == (5, 4)
    assert (moved["hpd_busy_seconds", "small"], moved["hpd_busy_seconds", "large"]) == (3.0, 2.0)
    assert (moved["hpd_load_seconds", "small"], moved["hpd_load_seconds", "large"]) == (2.0, 1.0)
    assert (moved["hpd_asked_again", "replaced"], moved["hpd_asked_again", "kept"]) == (2, 1)

    moved.clear()
    prometheus.count_shard("run", {key: value for key, value in manifest.items() if key != "cascade"})
    assert moved["hpd_busy_seconds", "small"] == 5.0
