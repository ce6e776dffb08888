"""The job as seen by the larger model of a cascade."""

from __future__ import annotations

from pipelines.config.extraction import JobConfig


def larger_model(config: JobConfig) -> JobConfig:
    """Replace model, adapter, engine and actors by the larger model's. Raises `ValueError` without a cascade."""
    cascade = config.cascade
    if cascade is None:
        raise ValueError("the job has no cascade")
    changes = {"model": cascade.model, "adapter": cascade.adapter, "engine": cascade.engine, "actors": cascade.actors}
    return config.model_copy(update={**changes, "cascade": None})
