"""A job says before it begins which of its schemas the model cannot answer."""

from __future__ import annotations

from typing import Any

import yaml
from typer.testing import CliRunner

from pipelines.extract import app
from tests.pipelines.conftest import Workplace, products

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
