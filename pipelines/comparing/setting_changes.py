"""Differences between two runs apart from their answers: configuration, engine, schemas, input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core import CategorySchema
from pipelines.job.run_plan import changed_keys, file_differences
from pipelines.runs.run import Run
from pipelines.schemas.diff import diff

# Of an engine's description, what the configuration does not say: where 'auto' and names have led to.
_ENGINE_KEYS = (
    "model_revision",
    "adapter_revision",
    "dtype",
    "quantization",
    "attention",
    "layers",
    "prompt_hash",
    "device",
    "device_name",
    "versions",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A key with different values; null if a run lacks it."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A difference of a category's schema, or of one attribute of it, in words."""

    category: str
    attribute: str | None
    change: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Differences between the runs' settings.

    Attributes:
        config: keys of the configuration that decide results.
        engine: revisions, precision, device and versions that were loaded.
        schemas: None if one of the runs did not record its schemas.
        files: input files, a line each.
        same_files: whether rows can be matched by their place, because both runs read the same files.
    """

    config: Sequence[Setting]
    engine: Sequence[Setting]
    schemas: Sequence[SchemaChange] | None
    files: Sequence[str]
    same_files: bool


def compare_settings(a: Run, b: Run) -> Settings:
    """Return the differences, in the order of the keys."""
    engine_a, engine_b = ({key: side.engine.get(key) for key in _ENGINE_KEYS} for side in (a, b))
    files = list(a.plan.files) != list(b.plan.files)
    return Settings(
        config=[Setting(*change) for change in changed_keys(dict(a.plan.result_config), dict(b.plan.result_config))],
        engine=[Setting(*change) for change in changed_keys(engine_a, engine_b)],
        schemas=None if a.schemas is None or b.schemas is None else _schema_changes(a.schemas, b.schemas),
        files=file_differences(a.plan.files, b.plan.files) if files else [],
        same_files=_same_files(a, b),
    )


def _schema_changes(a: Mapping[str, CategorySchema], b: Mapping[str, CategorySchema]) -> list[SchemaChange]:
    return [SchemaChange(remark.category, remark.attribute, remark.message) for remark in diff(a, b)]


def _same_files(a: Run, b: Run) -> bool:
    """Return whether one run read exactly the files of the other, or some of them."""
    first, second = ({(file.name, file.fingerprint) for file in side.plan.files} for side in (a, b))
    names = {name for name, _ in first | second}
    return len(names) == len(first | second) and (first <= second or second <= first)
