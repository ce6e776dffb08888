"""The configuration of an extraction job: one YAML file, checked before anything starts.

`JobConfig` is the reference: every key, its default and what it means. Unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hpd_core import EngineConfig
from hpd_core.plain_data import Section
from hpd_core.types import content_hash
from pipelines.config.catalog_input import InputConfig, shipped_file
from pipelines.config.operation import (
    AUTO,
    AcceptConfig,
    ActorConfig,
    CascadeConfig,
    CostConfig,
    RetryConfig,
    ShardConfig,
)


class JobConfig(Section):
    """One extraction job."""

    run_id: str | None = Field(None, pattern=r"^[\w.-]+$", description="name of the run; by default made from the time")
    input: InputConfig = Field(description="the catalog")
    schemas: str = Field(description="YAML file with the attributes of every category")
    output: str = Field(description="folder of this run, and of no other; local or any fsspec URI")
    model: str = Field(
        "smollm2",
        description="hub id, folder (local or any fsspec URI, copied to each node once), or an embedded model's name",
    )
    base: str | None = Field(
        None,
        description="output folder of an earlier, finished run: what has not changed since is taken over from it; "
        "'folder/*': the newest one there, if there is one",
    )
    retry_failed: str | None = Field(
        None, description="output folder of an earlier, finished run: only its dead-lettered rows are taken"
    )
    adapter: str | None = Field(
        None,
        description="LoRA adapter in peft's format: local folder, fsspec URI or hub id; 'none'. Left out, the embedded "
        "smollm2 gets the shipped one, for the layout that it was trained for",
    )
    decoding: Literal["hpd", "ar", "made-up"] = Field(
        "hpd",
        description="'hpd'; 'ar': the plain autoregressive baseline, to compare with; 'made-up': no model, answers "
        "drawn from a hash that mean nothing, to measure everything else (`model_id` says so)",
    )
    calibration: str | None = Field(
        AUTO,
        description="file of `hpd evaluate RUN --calibrate`, by which `confidence` is filled; 'auto': calibration.json "
        "in the folder of the adapter (or model), if it is there and fits; null: none",
    )
    accept: AcceptConfig | None = Field(
        None, description="fills `decision`: which values may be taken, and which are for review"
    )
    engine: EngineConfig = Field(default_factory=EngineConfig, description="how the engine decodes")
    cascade: CascadeConfig | None = Field(
        None, description="a larger model that is asked again where the first one is not sure"
    )
    executor: Literal["auto", "local", "ray"] = Field(
        "auto",
        description="'local': this process; 'ray': processes of Ray; 'auto': 'ray' where RAY_ADDRESS names a cluster "
        "or there is more than one engine, else 'local'",
    )
    shards: ShardConfig = Field(default_factory=ShardConfig, description="how the catalog is cut")
    actors: ActorConfig = Field(default_factory=ActorConfig, description="the pool of engines")
    retries: RetryConfig = Field(default_factory=RetryConfig, description="how often what fails is tried again")
    cost: CostConfig = Field(default_factory=CostConfig, description="what the machines cost, and the budget")
    max_dead_letter_share: float = Field(
        0.0, ge=0, le=1, description="share of dead-lettered rows above which the exit code is 3"
    )
    log_seconds: float = Field(10, gt=0, description="seconds between log lines without a terminal")

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Fill missing keys of the larger model's `engine` and `actors` from the first model's sections."""
        cascade = data.get("cascade") if isinstance(data, dict) else None
        if not isinstance(cascade, dict):
            return data
        inherited = {name: _over(data.get(name), cascade.get(name)) for name in ("engine", "actors")}
        return {**data, "cascade": {**cascade, **{name: each for name, each in inherited.items() if each is not None}}}

    @model_validator(mode="before")
    @classmethod
    def _with_shipped_adapter(cls, data: Any) -> Any:
        """Add the shipped adapter to the embedded model, which answers poorly without, unless `adapter` is given."""
        if not isinstance(data, dict) or data.get("model", "smollm2") != "smollm2" or "adapter" in data:
            return data
        engine = data.get("engine")
        layout = engine.get("layout", "tree") if isinstance(engine, dict) else getattr(engine, "layout", "tree")
        is_trained_for = layout == "tree" and data.get("decoding", "hpd") == "hpd"
        return data | {"adapter": shipped_file("adapters/smollm2-generalist")} if is_trained_for else data

    @field_validator("adapter", mode="after")
    @classmethod
    def _read_none(cls, value: str | None) -> str | None:
        return None if value == "none" else value

    @field_validator("base", "retry_failed", mode="after")
    @classmethod
    def _without_slash(cls, value: str | None) -> str | None:
        # A resume compares them: the same folder must read the same.
        return value if value is None else value.rstrip("/") or value

    @model_validator(mode="after")
    def _check_paths(self) -> JobConfig:
        paths = {
            name: getattr(self, name) for name in ("schemas", "output", "model", "adapter", "base", "retry_failed")
        }
        if self.cascade is not None:
            paths |= {"cascade.model": self.cascade.model, "cascade.adapter": self.cascade.adapter}
        for name, value in paths.items():
            if value is not None and not value.strip():
                raise ValueError(f"{name} must not be empty")
        if self.base is not None and self.retry_failed is not None:
            raise ValueError("base and retry_failed exclude each other: base takes failed rows again, too")
        return self

    @property
    def chooses_numbers(self) -> bool:
        """Whether a model of the job chooses numbers among those that a text states."""
        engines = [self.engine, *([] if self.cascade is None else [self.cascade.engine])]
        return self.decoding == "hpd" and any(engine.chooses_numbers for engine in engines)

    @property
    def needs_ray(self) -> str | None:
        """Key for which one process is not enough; None if it is."""
        pools = {"": self.actors} if self.cascade is None else {"": self.actors, "cascade.": self.cascade.actors}
        for place, actors in pools.items():
            if actors.most() > 1:
                return f"{place}actors.{'min' if actors.max == 'auto' else 'max'}"
            if actors.num_gpus is not None:
                return f"{place}actors.num_gpus"
        return None

    @model_validator(mode="after")
    def _check_executor(self) -> JobConfig:
        if self.executor == "local" and self.needs_ray is not None:
            raise ValueError(f"executor 'local' is one process, {self.needs_ray} needs Ray: set 'auto'")
        return self

    @model_validator(mode="after")
    def _check_gpus(self) -> JobConfig:
        pools = [("", self.engine, self.actors)]
        if self.cascade is not None:
            pools.append(("cascade.", self.cascade.engine, self.cascade.actors))
        for place, engine, actors in pools:
            size, gpus = engine.tensor_parallel, actors.num_gpus
            if size > 1 and self.decoding == "ar":
                raise ValueError(f"{place}engine.tensor_parallel is for decoding: hpd; set it to 1 for 'ar'")
            if size > 1 and gpus not in (None, 0, size):
                raise ValueError(
                    f"{place}engine.tensor_parallel {size} takes {size} GPUs, {place}actors.num_gpus is {gpus:g}; "
                    "leave the latter out"
                )
        return self

    @model_validator(mode="after")
    def _check_baseline(self) -> JobConfig:
        for key, is_set, why in (
            (
                "engine.document_attention 'bidirectional'",
                self.engine.reads_both_ways,
                "reads documents in the order of their text: set it to 'causal'",
            ),
            ("engine.strings 'verbatim'", self.engine.strings != "free", "writes what it likes: set it to 'free'"),
            ("engine.answer_threshold", self.engine.answer_threshold is not None, "has no probabilities: leave it out"),
            ("cascade", self.cascade is not None, "cannot be asked for some of the attributes"),
        ):
            if is_set and self.decoding == "ar":
                raise ValueError(f"{key} is for decoding: hpd; 'ar' {why}")
        return self

    @model_validator(mode="after")
    def _check_cascade(self) -> JobConfig:
        cascade = self.cascade
        if cascade is None:
            return self
        if cascade.engine.layout != "tree":
            raise ValueError(
                f"cascade.engine.layout {cascade.engine.layout!r}: its answers depend on each other, so none can be "
                "asked for alone; set it to 'tree'"
            )
        if (self.model, self.adapter, self.engine) == (cascade.model, cascade.adapter, cascade.engine):
            raise ValueError("cascade: it is the same model with the same adapter and engine; name a larger one")
        return self


def _over(first: Any, own: Any) -> Any:
    """Return section `own` with missing keys from `first`, recursively; `own` itself if either is not a section."""
    if not isinstance(first, dict):
        return own
    if own is None:
        return first
    if not isinstance(own, dict):
        return own
    return {
        **first,
        **{key: _over(first.get(key), value) if isinstance(value, dict) else value for key, value in own.items()},
    }


# What cannot change a result, only where it goes, how fast it comes, or how it is judged.
_FREE_SECTIONS = (
    *("run_id", "output", "schemas", "executor", "shards", "actors", "retries"),
    *("cost", "max_dead_letter_share", "log_seconds"),
    # A run keeps those that it began with, so a resume cannot change them (job/named_models.py).
    *("calibration", "accept"),
)
LATER_INPUT_KEYS = ("copied", "language", "encoding", "delimiter", "quote", "escape", "sheet")
_FREE_ENGINE_KEYS = (
    *("max_tokens_per_step", "max_prompts_per_cohort", "max_cached_tokens", "max_cached_prefixes"),
    *("layers", "share_text", "cuda_graphs"),
)
_LATER_ENGINE_KEYS = {
    **{"tensor_parallel": 1, "document_attention": "auto", "strings": "free", "numbers": "free"},
    **{"answer_threshold": None, "max_scored_tokens": 0},
}
"""Keys that came later, and their values in runs that were planned before, which can still be continued."""


def result_config(config: JobConfig) -> dict[str, Any]:
    """Return the part of the configuration that decides results, as plain data. A resume must not change it.

    The schema *file name* is excluded: the plan records the schemas' content hash instead.
    """
    data = config.model_dump(mode="json", exclude=set(_FREE_SECTIONS))
    data["engine"] = _result_engine(data["engine"])
    if config.cascade is None:
        del data["cascade"]  # likewise: see below
    else:
        del data["cascade"]["actors"], data["cascade"]["calibration"]
        data["cascade"]["engine"] = _result_engine(data["cascade"]["engine"])
    # How the catalog is reached does not change what is in it.
    data["input"].pop("anonymous")
    for key in LATER_INPUT_KEYS:
        # Runs that were planned before there was such a key can still be continued.
        if data["input"][key] in (None, {}):
            del data["input"][key]
    if config.input.html == "never":
        # As it was before there was a choice: a run that was begun then is continued with 'never'.
        del data["input"]["html"]
    for key in ("adapter", "base", "retry_failed"):
        if data[key] is None:
            # Runs that were planned before there was such a key can still be continued.
            del data[key]
    # The order of the fields is their order in the prompt; a hash does not see the order of a mapping.
    data["input"]["fields"] = [list(field) for field in data["input"]["fields"].items()]
    return data


def with_later_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `result_config` with the engines' keys that it leaves out, as they were before there were any."""
    found = {**config, "engine": _LATER_ENGINE_KEYS | config["engine"]}
    return found | ({"cascade": with_later_keys(found["cascade"])} if found.get("cascade") else {})


def _result_engine(data: dict[str, Any]) -> dict[str, Any]:
    """Return an engine's settings that decide results."""
    return {
        key: value
        for key, value in data.items()
        if key not in _FREE_ENGINE_KEYS and (key, value) not in _LATER_ENGINE_KEYS.items()
    }


def config_hash(config: JobConfig) -> str:
    """Return a hash that is equal for configurations with the same results on the same input."""
    return content_hash(result_config(config))
