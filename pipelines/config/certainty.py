"""Treatment of uncertain answers: which are accepted, and which are asked again."""

from __future__ import annotations

from pydantic import Field

from hpd_core import EngineConfig
from hpd_core.system.section import Section
from pipelines.config.operation import ActorConfig

AUTO = "auto"


class AcceptConfig(Section):
    """Rules for accepting answers without review."""

    precision: float = Field(
        gt=0,
        lt=1,
        description="at least this share of the accepted values is right; what cannot promise it is for review",
    )
    pool_rare: bool = Field(
        True,
        description="attributes with few labelled values have a threshold together, which promises for all of them "
        "together; else their values are for review",
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
