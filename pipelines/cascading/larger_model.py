"""The job as the larger model of a cascade does its part of it."""

from __future__ import annotations

from pipelines.config.extraction import JobConfig


def larger_model(config: JobConfig) -> JobConfig:
    """The configuration with the larger model, its adapter, engine and actors in the place of the first one's."""
    cascade = config.cascade
    if cascade is None:
        raise ValueError("the job has no cascade")
    changes = {"model": cascade.model, "adapter": cascade.adapter, "engine": cascade.engine, "actors": cascade.actors}
    return config.model_copy(update={**changes, "cascade": None})
