"""Every section of every configuration refuses a truth value where it wants a number, whatever key it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from hpd_core.data.section import Section
from pipelines.config.extraction import JobConfig
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.labelling import LabelConfig
from pipelines.config.loading import load_config
from pipelines.errors import UsageError
from pipelines.serving.server import ServeConfig
from pipelines.training.few_settings import FewCurve
from tests.tables import table

CONFIGURATIONS = (JobConfig, FinetuneConfig, LabelConfig, ServeConfig, FewCurve)
MINIMAL: dict[str, Any] = {
    "input": {"path": "catalog.parquet", "fields": ["title"]},
    "schemas": "schemas.yaml",
    "output": "out",
}


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for each in get_args(annotation):
        yield from models_in(each)


MODELS = {found for each in CONFIGURATIONS for found in models_in(each)}


def kinds_of(schema: dict[str, Any]) -> set[str]:
    """The types that JSON Schema says of a field, or of its items; independent of how sections find them."""
    parts = [*schema.get("anyOf", ()), *schema.get("prefixItems", ())]
    parts += [schema["items"]] if isinstance(schema.get("items"), dict) else []
    return {str(schema.get("type"))}.union(*map(kinds_of, parts))


NUMBERS = [
    pytest.param(model, name, id=f"{model.__name__}.{name}")
    for model in sorted(MODELS, key=lambda model: model.__name__)
    for name, schema in model.model_json_schema(mode="validation")["properties"].items()
    if kinds_of(schema) & {"integer", "number"} and "boolean" not in kinds_of(schema)
]


def load(folder: Path, *overrides: str) -> JobConfig:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    return load_config(JobConfig, str(path), overrides)


def test_there_is_one_kind_of_section() -> None:
    assert {model for model in MODELS if not issubclass(model, Section)} == set()
    assert len(NUMBERS) > 60


@table("truth", [True, False, [True, 0.5], (0.5, False)])
@table(("model", "name"), NUMBERS)
def test_a_truth_value_is_no_number(model: type[BaseModel], name: str, truth: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({name: truth})
    told = {problem["loc"]: problem["msg"] for problem in caught.value.errors()}
    assert "is no number" in told[(name,)]


@table(
    ("override", "message"),
    [
        ("max_dead_letter_share=true", "'max_dead_letter_share': true is no number"),
        ("engine.max_value_tokens=on", "'engine.max_value_tokens': true is no number"),
        ("engine.max_tokens_per_step=true", "'engine.max_tokens_per_step': true is no number"),
        ("engine.prompt.max_listed_values=no", "'engine.prompt.max_listed_values': false is no number"),
        ("actors.max=yes", "'actors.max': true is no number (in YAML, yes and on are true, too): write a number"),
        ("shards.ramp=[true]", "'shards.ramp': true is no number"),
        ("cascade={model: larger, below: true}", "'cascade.below': true is no number"),
        ("input.category={column: path, level: yes}", "'input.category.level': true is no number"),
        ("log_seconds=.inf", "'log_seconds': Input should be a finite number"),
    ],
)
def test_what_is_no_number_is_named_by_its_key(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, override)
    assert message in str(caught.value)
