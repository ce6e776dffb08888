from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from pipelines.config.extraction import JobConfig, config_hash
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.labelling import LabelConfig
from pipelines.config.loading import load_config
from pipelines.errors import UsageError
from tests.tables import table

MINIMAL: dict[str, Any] = {
    "input": {"path": "catalog.parquet", "fields": ["title"]},
    "schemas": "schemas.yaml",
    "output": "out",
}


def write(folder: Path, document: Any) -> str:
    path = folder / "job.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def load(folder: Path, document: Any, *overrides: str) -> JobConfig:
    return load_config(JobConfig, write(folder, document), overrides)


@table(
    ("overrides", "message"),
    [
        (["engine.layuot=tree"], "unknown key 'engine.layuot'; did you mean 'engine.layout'?"),
        (["layout=tree"], "unknown key 'layout'; did you mean 'engine.layout'?"),
        (["input.zzz=1"], "unknown key 'input.zzz'; known keys here: path, format, id"),
        (["engine.layout=bush"], "'engine.layout': Input should be 'tree' or 'stacked' (got 'bush')"),
        (
            ["engine.max_tokens_per_step=0"],
            "'engine.max_tokens_per_step': Input should be greater than or equal to 1, or 'auto' (got 0)",
        ),
        (["input.fields=[title, title]"], "'input.fields': a column is listed twice"),
        (["input.path=[]"], "'input.path': at least one path is needed"),
        (["actors.min=3", "actors.max=1"], "'actors': min (3) must not be above max (1)"),
        (["shards.ramp=[2]"], "'shards.ramp': every factor must be above 0 and at most 1"),
        (["input.path='  '"], "'input.path': a path is empty"),
        (["input.path=5"], "'input.path': a list is needed (got 5)"),
        (["input.fields=[[title]]"], "'input.fields': a list holds names of columns; write `name: column`"),
        (["input.fields={title: 5}"], "'input.fields.title': the name of a column is needed (a number in quotes)"),
        (["input.id=5"], "'input.id': the name of a column is needed (a number in quotes), or one of column, join"),
        (["schemas=[a, b]"], "'schemas': a text is needed"),
        (["run_id=20261120"], "'run_id': a text is needed: put it in quotes (got 20261120)"),
        (["run_id=a/b"], "'run_id'"),
        (["model.name=x"], "--set 'model.name=x': 'model' is not a mapping"),
        (["engine.layout=[a"], "--set 'engine.layout=[a', line 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, MINIMAL | {"model": "smollm2"}, *overrides)
    assert message in str(caught.value)


@table(
    ("text", "message"),
    [
        ("model: a\nmodel: b\n", "line 2: key 'model' is written twice (first in line 1)"),
        ("", "is empty"),
        ("- a\n- b\n", "a mapping of keys is needed, not a list"),
        ("? [a]\n: b\n", "line 1"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1"),
        ("run_id: a\nlog_seconds: 010\n", "line 2: YAML reads '010' as the number 8; write a number without zeros"),
        ("run_id: 1:30\n", "line 1: YAML reads '1:30' as the number 90;"),
    ],
)
def test_yaml_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_config(JobConfig, path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_the_hash_follows_what_decides_results(tmp_path: Path) -> None:
    plain = config_hash(load(tmp_path, MINIMAL))
    free = ["output=elsewhere", "actors.max=8", "shards.target_tokens=5", "run_id=x", "max_dead_letter_share=1"]
    free += ["engine.max_tokens_per_step=17", "retries.max_attempts=9", "schemas=other.yaml", "log_seconds=1"]
    free += ["engine.document_attention=auto", "input.copied={}"]
    for override in free:
        assert config_hash(load(tmp_path, MINIMAL, override)) == plain, override
    deciding = ["engine.layout=stacked", "model=other", "decoding=ar", "input.fields=[title, text]", "input.id=asin"]
    deciding += ["engine.max_value_tokens=9", "input.list_separator=' '", "engine.dtype=float32"]
    deciding += ["engine.document_attention=bidirectional", "input.quote=''", "input.copied={Brand: vendor}"]
    for override in deciding:
        assert config_hash(load(tmp_path, MINIMAL, override)) != plain, override


def test_documents_are_not_read_both_ways_token_by_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'bidirectional' is for decoding: hpd"):
        load(tmp_path, MINIMAL, "engine.document_attention=bidirectional", "decoding=ar")


OTHER_CONFIGURATIONS: dict[str, type[BaseModel]] = {
    "label.yaml": LabelConfig,
    "finetune.yaml": FinetuneConfig,
    "finetune-extractgpt.yaml": FinetuneConfig,
}


@table("path", sorted(Path("configs").glob("*.yaml")))
def test_the_shipped_configurations_are_valid(path: Path) -> None:
    load_config(OTHER_CONFIGURATIONS.get(path.name, JobConfig), str(path))
