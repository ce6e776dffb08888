"""Settings of how a job is run: shards, actors, retries, costs. None of them changes an answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpd_core import EngineConfig
from hpd_core.config import AutoCount
from hpd_core.plain_data import Section


class ShardConfig(Section):
    """Shards that the catalog is cut into. A shard is the unit of work, commit and retry."""

    target_tokens: int = Field(
        200_000, ge=1, description="estimated tokens in a full shard: about a minute of GPU work"
    )
    max_rows: int = Field(50_000, ge=1, description="cap on a shard's rows")
    ramp: tuple[float, ...] = Field(
        (0.02, 0.05, 0.1, 0.25, 0.5),
        description="sizes of the first shards relative to the target; []: all alike, the last ones too",
    )

    @field_validator("ramp")
    @classmethod
    def _check_ramp(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < factor <= 1 for factor in value):
            raise ValueError("every factor must be above 0 and at most 1")
        return value


class ActorConfig(Section):
    """The pool of engines: between `min` and `max` actors, each with one engine."""

    min: int = Field(1, ge=1, description="actors kept from the start")
    max: AutoCount = Field(
        "auto",
        description="actors at most; 'auto': one for each GPU that there is or that Ray adds, without GPUs `min`",
    )
    num_gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs of an actor; by default 1 (or engine.tensor_parallel) if the cluster has any when the job "
        "starts",
    )
    num_cpus: float = Field(1, gt=0, description="CPUs that Ray reserves for an actor")
    num_threads: int | None = Field(
        None, ge=1, description="torch threads; by default the node's CPUs / the engines that it may hold"
    )
    max_in_flight: int = Field(
        2,
        ge=1,
        description="shards that an actor has in its engine at once; more where shards are so small that two do not "
        "fill it",
    )

    @model_validator(mode="after")
    def _check_range(self) -> ActorConfig:
        if self.min > self.most():
            raise ValueError(f"min ({self.min}) must not be above max ({self.max})")
        return self

    def most(self, room: int = 1) -> int:
        """Return the number of actors at most; with 'auto' as many as GPUs have room for."""
        return max(self.min, room) if self.max == "auto" else self.max


class RetryConfig(Section):
    """Limits of retries: every retry is finite. What fails to the end is a dead letter, never a hang."""

    max_attempts: int = Field(
        3, ge=1, description="times a whole shard is tried in one session before its bad records are searched for"
    )
    max_minutes: float = Field(
        60, gt=0, description="a shard that is not decoded after so long has failed; its process is replaced"
    )
    lease_seconds: float = Field(
        60, gt=0, description="a driver that is silent for so long is taken for dead, and its run may be taken over"
    )


class CostConfig(Section):
    """Costs of the machines. EC2 instances report their own type; settings here take precedence."""

    instance_type: str | None = Field(
        None, min_length=1, description="kind of machine, for the price table, e.g. g6e.48xlarge"
    )
    market: Literal["on-demand", "spot"] | None = Field(None, description="how it is bought")
    usd_per_hour: float | None = Field(None, ge=0, description="price of a whole machine, instead of the table's")
    max_usd: float | None = Field(
        None,
        gt=0,
        description="the run stops when its engines have cost so much; looked at whenever a shard is committed, so "
        "what is under way then comes on top",
    )


AUTO = "auto"


class AcceptConfig(Section):
    """Rules for accepting answers without review."""

    precision: float = Field(
        gt=0,
        lt=1,
        description="at least this share of the accepted values is right; what cannot promise it is for review",
    )


class CascadeConfig(Section):
    """A larger model that is asked again, in the same run, for answers that the first one is not sure of."""

    model: str = Field(description="the larger model, as `model`")
    adapter: str | None = Field(None, description="its adapter, as `adapter`")
    below: float = Field(
        ge=0,
        le=1,
        description="answers less certain than this are asked for again: by their `confidence` where it is known, else "
        "by their `probability`; those that are cut or no valid value have none. 0: nothing is asked again, 1: all",
    )
    calibration: str | None = Field(
        AUTO, description="of its answers, as `calibration`; 'auto': beside its adapter, if it is there and fits"
    )
    engine: EngineConfig = Field(
        default_factory=EngineConfig,
        description="how its engines decode; what is not said is as in `engine`. The layout is 'tree': of others, "
        "answers depend on each other",
    )
    actors: ActorConfig = Field(
        default_factory=ActorConfig, description="the pool of its engines; what is not said is as in `actors`"
    )
