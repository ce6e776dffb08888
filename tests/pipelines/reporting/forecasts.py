"""A forecast and a job that tests change in one thing."""

from __future__ import annotations

from dataclasses import replace

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import parse_config
from pipelines.reporting.forecast import CategoryForecast, Forecast, Interval, Price


def forecast(**changes: object) -> Forecast:
    plain = Forecast(
        basis="pilot",
        source="runs/x.pilot",
        created_at="2026-11-21T00:00:00+00:00",
        model="m",
        device="NVIDIA L40S",
        rows=1_000_000,
        dead_rows=0,
        sampled=2000,
        num_batches=20,
        work_hours=Interval(76.0, 66.5, 85.5),
        prefix_hours=0.0,
        load_seconds=360.0,
        utilisation=0.95,
        utilisation_source="assumed",
        engines=8,
        price=Price(3.0, "configuration", "g6e.48xlarge", "spot", 8),
        categories=[CategoryForecast("Shoes", 1_000_000, 2000, Interval(76.0, 66.5, 85.5))],
        tokens={"document": 60.0, "key": 30.0, "value": 10.0},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def job(**cost: object) -> JobConfig:
    document = {
        "input": {"path": "x", "fields": ["title"]},
        "schemas": "s",
        "output": "o",
        "actors": {"max": 16},
        "cost": cost,
    }
    return parse_config(JobConfig, document, "job.yaml")
