"""The count of schemas that are taken, on a folder of a few."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from bench import json_schemas, made_up_schemas
from tests.core.json.test_schema_reader import an_object


def test_schemas_are_counted_and_answered(tmp_path: Path, tiny_model_dir: Path) -> None:
    flags = an_object("a", "b", a={"type": "boolean"}, b={"type": "object", "additionalProperties": {"const": 1}})
    files = {
        "own": flags,
        "of-a-benchmark": {"schema": flags, "tests": []},
        "far": an_object(a={"$ref": "https://example.com/x"}),
        "no-schema": {"name": "x"},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "broken.json").write_text("{")
    arguments = [str(tmp_path), "--answers", "2", "--model", str(tiny_model_dir), "--most-seconds", "60"]
    result = CliRunner().invoke(json_schemas.app, arguments)
    assert result.exit_code == 0, result.output
    printed = result.stdout
    assert "taken: 2 of 3, 66.7%" in printed
    assert "refused: 1  _ is outside of the schema" in printed
    assert "of 2 answers" in printed


def test_made_up_schemas_are_checked_or_refused() -> None:
    result = CliRunner().invoke(made_up_schemas.app, ["3", "--most-seconds", "60"])
    assert result.exit_code == 0, result.output
    assert ", 0 failed" in result.stdout
