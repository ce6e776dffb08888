"""The configuration of an extraction job: one YAML file, checked before anything starts.

`JobConfig` is the reference: every key, its default and what it means. Unknown keys are refused.
"""

from __future__ import annotations

import codecs
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hpd_core import EngineConfig
from hpd_core.types import content_hash
from pipelines.config.mapping import Mapped
from pipelines.config.reading import InputFormat, Reading

HtmlMode = Literal["auto", "always", "never"]
LANGUAGE = "language"
AUTO = "auto"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputConfig(_Section):
    """Where the catalog is and which of its columns the job reads."""

    path: tuple[str, ...] = Field(
        description="a file, a folder (searched in depth, names with _ or . skipped), a glob ([[] for a bracket), or a "
        "list of them; local or any fsspec URI"
    )
    format: InputFormat = Field(
        "auto",
        description="'auto': by each file's content. 'csv' takes a Shopify export row by row, else it is read a "
        "product at a time",
    )
    id: Mapped | None = Field(None, description="column with the product id; without it: '<file stem>:<row>'")
    category: Mapped = Field(
        Mapped(column="category"),
        description="column that names the product's category: as the schemas do, or by an id or alias of theirs; "
        "{column, separator, level}: as a path; {text}: one for all products",
    )
    fields: dict[str, Mapped] = Field(
        min_length=1, description="name in the prompt -> column, in the prompt's order; a list if both are equal"
    )
    language: Mapped | None = Field(
        None, description=f"column that names the text's language, or {{text}}: read as a first field {LANGUAGE!r}"
    )
    list_separator: str = Field("\n", description="joins the items of a list column into one text")
    html: HtmlMode = Field(
        "auto",
        description="'auto': a field that holds HTML is read as the text that it shows, the rest as it stands; "
        "'always': whatever looks like a tag is one; 'never': tags and entities are text",
    )
    encoding: str | None = Field(
        None, description="of text files without a byte order mark that are not UTF-8: cp1252, latin-1, ..."
    )
    delimiter: str | None = Field(None, description="between the cells of CSV; by default it is found out")
    quote: str | None = Field(None, description="around cells of CSV; '' if nothing is quoted; by default found out")
    escape: str | None = Field(None, description="in front of a quote in a cell of CSV; by default it is doubled")
    sheet: str | None = Field(None, description="of a workbook, by name; needed if several hold rows")
    anonymous: bool = Field(False, description="read s3:// without credentials (public buckets)")

    @model_validator(mode="after")
    def _check_mapping(self) -> InputConfig:
        if self.id is not None and self.id.text is not None:
            raise ValueError("id: a text for all rows is no id; leave it out")
        if self.category.join is not None:
            raise ValueError("category: several columns are no name; name the one, or {column, separator} for a path")
        others = [("id", self.id), ("language", self.language), *self.fields.items()]
        if path := next((name for name, each in others if each is not None and each.is_path), None):
            raise ValueError(f"{path}: separator and level are for the category's column")
        if self.language is not None and LANGUAGE in self.fields:
            raise ValueError(f"a field is called {LANGUAGE!r}, as input.language is: leave out one of the two")
        return self

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str | None) -> str | None:
        try:
            return value if value is None else codecs.lookup(value).name
        except LookupError:
            raise ValueError(f"there is no encoding {value!r}; cp1252 and latin-1 are frequent ones") from None

    @model_validator(mode="after")
    def _check_dialect(self) -> InputConfig:
        given = [each for each in (self.delimiter, self.quote, self.escape) if each]
        if self.delimiter == "" or any(len(each) != 1 or each in "\r\n" for each in given):
            raise ValueError("delimiter, quote and escape are one character each ('\\t' in double quotes for a tab)")
        if len({*given}) < len(given):
            raise ValueError("delimiter, quote and escape must be different characters")
        return self

    @field_validator("path", mode="before")
    @classmethod
    def _accept_one_path(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("path", mode="after")
    @classmethod
    def _check_paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not all(value):
            raise ValueError("at least one path is needed")
        return value

    @field_validator("fields", mode="before")
    @classmethod
    def _accept_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list):
            if len(set(map(str, value))) != len(value):
                raise ValueError("a column is listed twice")
            return {name: name for name in value}
        return value

    @property
    def reading(self) -> Reading:
        """How its files are read."""
        return Reading(self.format, self.encoding, self.delimiter, self.quote, self.escape, self.sheet, self.anonymous)

    @property
    def texts(self) -> dict[str, Mapped]:
        """What the model reads, in its order: name -> where it is from."""
        return ({} if self.language is None else {LANGUAGE: self.language}) | self.fields

    @property
    def mapped(self) -> list[tuple[str, str]]:
        """Every column that is read, or path into one, with the setting that names it."""
        named = [("input.id", self.id), ("input.category", self.category), ("input.language", self.language)]
        named += [("input.fields", each) for each in self.fields.values()]
        return [(setting, column) for setting, each in named if each is not None for column in each.columns]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, or path into one, once each."""
        return tuple(dict.fromkeys(column for _, column in self.mapped))


class ShardConfig(_Section):
    """How the catalog is cut. A shard is the unit of work, of commit and of retry."""

    target_tokens: int = Field(
        200_000, ge=1, description="estimated tokens in a full shard: about a minute of GPU work"
    )
    max_count: int = Field(
        100_000, ge=1, description="shards, about: for a catalog that would have more, target_tokens is raised"
    )
    max_bytes: int = Field(32 * 2**20, ge=1, description="cap on a shard's input bytes")
    max_rows: int = Field(50_000, ge=1, description="cap on a shard's rows")
    ramp: tuple[float, ...] = Field(
        (0.25, 0.5), description="sizes of the first shards relative to the target; the last ones shrink likewise"
    )

    cluster_by_category: bool = Field(
        False,
        description="first deals all rows anew, so that a shard holds few categories: a pass over the whole catalog, "
        "which pays where a shard would hold hundreds",
    )

    @field_validator("ramp")
    @classmethod
    def _check_ramp(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < factor <= 1 for factor in value):
            raise ValueError("every factor must be above 0 and at most 1")
        return value


class ActorConfig(_Section):
    """The pool of engines: between `min` and `max` actors, each with one engine."""

    min: int = Field(1, ge=1, description="actors kept from the start")
    max: int = Field(1, ge=1, description="actors at most")
    num_gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs of an actor; by default 1 (or engine.tensor_parallel) if the cluster has any when the job "
        "starts",
    )
    num_cpus: float = Field(1, gt=0, description="CPUs that Ray reserves for an actor")
    num_threads: int | None = Field(None, ge=1, description="torch threads; by default the node's CPUs / actors.max")
    max_in_flight: int = Field(
        2,
        ge=1,
        description="shards that an actor has in its engine at once; more where shards are so small that two do not "
        "fill it",
    )

    @model_validator(mode="after")
    def _check_range(self) -> ActorConfig:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not be above max ({self.max})")
        return self


class RetryConfig(_Section):
    """Every retry is finite. What fails to the end is a dead letter, never a hang."""

    max_attempts: int = Field(
        3, ge=1, description="times a whole shard is tried in one session before its bad records are searched for"
    )
    max_minutes: float = Field(
        60, gt=0, description="a shard that is not decoded after so long has failed; its process is replaced"
    )
    lease_seconds: float = Field(
        60, gt=0, description="a driver that is silent for so long is taken for dead, and its run may be taken over"
    )
    max_actor_restarts: int = Field(
        20, ge=0, description="times one actor may come back; while the run gets on, new ones follow"
    )
    max_task_retries: int = Field(3, ge=0, description="times Ray repeats a prepare or finish task of a dead worker")


class CostConfig(_Section):
    """What the machines cost. On EC2 they say themselves what they are; what is set here counts first."""

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


class AcceptConfig(_Section):
    """Which answers may be taken without a look."""

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


class CascadeConfig(_Section):
    """A larger model that is asked again, in the same run, for the answers that the first one is not sure of."""

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


class JobConfig(_Section):
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
    adapter: str | None = Field(None, description="LoRA adapter in peft's format: local folder, fsspec URI or hub id")
    decoding: Literal["hpd", "ar", "made-up"] = Field(
        "hpd",
        description="'hpd'; 'ar': the plain autoregressive baseline, to compare with; 'made-up': no model, answers "
        "drawn from a hash that mean nothing, to measure everything else (`model_id` says so)",
    )
    calibration: str | None = Field(
        AUTO,
        description="file of `hpd calibrate`, by which `confidence` is filled; 'auto': calibration.json in the folder "
        "of the adapter (or model), if it is there and fits; null: none",
    )
    accept: AcceptConfig | None = Field(
        None, description="fills `decision`: which values may be taken, and which are for review"
    )
    engine: EngineConfig = Field(default_factory=EngineConfig, description="how the engine decodes")
    cascade: CascadeConfig | None = Field(
        None, description="a larger model that is asked again where the first one is not sure"
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
        """What is not said of the larger model's engines and actors is as with the first model's."""
        cascade = data.get("cascade") if isinstance(data, dict) else None
        if not isinstance(cascade, dict):
            return data
        inherited = {name: _over(data.get(name), cascade.get(name)) for name in ("engine", "actors")}
        return {**data, "cascade": {**cascade, **{name: each for name, each in inherited.items() if each is not None}}}

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
    def _check_cascade(self) -> JobConfig:
        cascade = self.cascade
        if cascade is None:
            return self
        if self.decoding == "ar":
            raise ValueError("cascade is for decoding: hpd; 'ar' cannot be asked for some of the attributes")
        if cascade.engine.layout != "tree":
            raise ValueError(
                f"cascade.engine.layout {cascade.engine.layout!r}: its answers depend on each other, so none can be "
                "asked for alone; set it to 'tree'"
            )
        if (self.model, self.adapter, self.engine) == (cascade.model, cascade.adapter, cascade.engine):
            raise ValueError("cascade: it is the same model with the same adapter and engine; name a larger one")
        return self


def _over(first: Any, own: Any) -> Any:
    """A section with another's keys where it has none; below it, likewise. As it stands, if either is no section."""
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
    *("run_id", "output", "schemas", "shards", "actors", "retries", "cost"),
    *("max_dead_letter_share", "log_seconds"),
    # A run keeps those that it began with, so a resume cannot change them (job/wanted_confidence.py).
    *("calibration", "accept"),
)
LATER_INPUT_KEYS = ("language", "encoding", "delimiter", "quote", "escape", "sheet")
_FREE_ENGINE_KEYS = (
    *("max_tokens_per_step", "max_prompts_per_cohort", "max_cached_tokens", "max_cached_prefixes"),
    *("layers", "pack_weights", "max_draft_tokens_per_step", "share_text", "cuda_graphs"),
)


def result_config(config: JobConfig) -> dict[str, Any]:
    """The part of the configuration that decides results, as plain data. A resume must not change it.

    The schema *file name* is not in it: the plan records the schemas' content hash instead.
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
        if data["input"][key] is None:
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


def _result_engine(data: dict[str, Any]) -> dict[str, Any]:
    """An engine's settings that decide results."""
    found = {key: value for key, value in data.items() if key not in _FREE_ENGINE_KEYS}
    if found["tensor_parallel"] == 1:
        del found["tensor_parallel"]  # likewise
    if found["max_scored_tokens"] == 0:
        # As it was before there was a choice: a run that was begun then is continued with 0.
        del found["max_scored_tokens"]
    return found


def config_hash(config: JobConfig) -> str:
    """Equal for two configurations that give the same results on the same input."""
    return content_hash(result_config(config))
