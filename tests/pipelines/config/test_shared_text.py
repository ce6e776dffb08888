"""Schemas whose texts are exclusive, by labels: who shares text with whom, and what the command writes of it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipelines.config.lint import lint
from pipelines.config.schema_file import load_schemas
from pipelines.schema import app
from tests.tables import table


@table("plain", [["--plain"], []])
def test_the_command_writes_what_can_be_read(tmp_path: Path, plain: list[str]) -> None:
    gold, out = tmp_path / "gold.jsonl", tmp_path / "schemas.yaml"
    values = {"Type": ["Men's jersey"], "Gender": ["Men"], "Brand": ["Velor 12"], "Weight": ["12"]}
    lines = [{"product_id": str(n), "category": "Shirts", "values": values} for n in range(3)]
    gold.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = CliRunner().invoke(app, ["import", str(gold), "--exclusive", "--out", str(out), *plain])
    assert result.exit_code == 0, result.output
    schema = load_schemas(str(out))["Shirts"]
    shares = {each.name: each.shares_text_with for each in schema.attributes if each.is_exclusive}
    expected = {"Brand": (), "Gender": ("Type",), "Type": ("Gender",)}
    assert shares == (expected | {"Weight": ("Brand",), "Brand": ("Weight",)} if plain else expected)
    assert not [str(remark) for remark in lint({"Shirts": schema}) if "shares" in str(remark)]
