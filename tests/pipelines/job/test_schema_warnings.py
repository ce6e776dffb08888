"""A job says before it begins which of its schemas the model cannot answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hpd_core.requests import schema_room
from pipelines.extract import app
from pipelines.store.folders import Folder
from tests.pipelines.conftest import SCHEMAS, Workplace, products

LEAVES = [f"Home > Kitchen > Leaf {number}" for number in range(300)]
MUGS = [{"name": "Brand"}, {"name": "Leaf", "type": "enum", "values": LEAVES}]
ENGINE = {"dtype": "float32", "device": "cpu", "max_value_tokens": 6}
LISTED = {"engine": {**ENGINE, "prompt": {"max_listed_values": 300}}}


def dry_run(workplace: Workplace, categories: dict[str, Any], **changes: Any) -> Any:
    workplace.write_jsonl("c.jsonl", products(4))
    path = workplace.folder / "schemas.yaml"
    path.write_text(yaml.safe_dump({"categories": categories}, sort_keys=False), encoding="utf-8")
    return CliRunner().invoke(app, ["--config", str(workplace.write_config(**changes)), "--dry-run", "--json"])


def test_where_no_category_fits_the_job_is_refused(workplace: Workplace) -> None:
    result = dry_run(workplace, {"Mugs": MUGS, "Cups": MUGS}, **LISTED)
    assert result.exit_code == 2
    assert "schemas.yaml: no product can be decoded\n  category 'Mugs': its 2 attributes take" in result.stderr
    assert "lower engine.prompt.max_listed_values, so that they are not listed, or allow fewer values" in result.stderr


def test_many_warnings_are_cut(workplace: Workplace) -> None:
    more = {f"Mugs {number}": MUGS for number in range(25)}
    result = dry_run(workplace, {**SCHEMAS["categories"], **more}, **LISTED)
    warnings = json.loads(result.stdout)["warnings"]
    assert len(warnings) == 11
    assert warnings[-1] == "and 15 more problems of this kind with the schemas"


def test_schemas_of_ordinary_size_load_no_tokenizer(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_room, "SchemaRoom", None)
    assert dry_run(workplace, SCHEMAS["categories"], model="no/such-model").exit_code == 0


def test_a_model_that_cannot_be_looked_at_is_no_reason_to_refuse_a_plan(workplace: Workplace) -> None:
    for name in ("config.json", "model.safetensors"):
        Folder("memory://without-tokenizer").write(name, b"{}")
    result = dry_run(workplace, {"Mugs": MUGS}, model="memory://without-tokenizer", **LISTED)
    assert result.exit_code == 0, result.output
    assert "whether the schemas fit into the model's context is not known: " in result.stderr
