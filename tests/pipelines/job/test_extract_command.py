"""The command line: what a user sees and the exit code, for every kind of bad input. No run gets as far as Ray."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from pipelines.extract import app
from tests.pipelines.conftest import SCHEMAS, Workplace, product, products


def run(workplace: Workplace, *arguments: str, **changes: Any) -> Result:
    return CliRunner().invoke(app, ["--config", str(workplace.write_config(**changes)), *arguments])


def refused(workplace: Workplace, *arguments: str, **changes: Any) -> str:
    """The message of a run that ends with 2 and leaves nothing behind."""
    result = run(workplace, *arguments, **changes)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stderr.startswith("Error: ")
    assert not (workplace.folder / "out/manifest.json").exists()
    return result.stderr


@pytest.fixture
def catalog(workplace: Workplace) -> Workplace:
    workplace.write_parquet("a.parquet", products(6))
    return workplace


def test_missing_file(workplace: Workplace) -> None:
    assert f"input.path: no such file or folder: {workplace.catalog}" in refused(workplace)


def test_schema_with_duplicate_attributes(catalog: Workplace) -> None:
    path = catalog.folder / "doubled.yaml"
    path.write_text(yaml.safe_dump({"categories": {"Shoes": ["Brand", "Brand"]}}))
    message = refused(catalog, schemas=str(path))
    assert "doubled.yaml, line 4: category 'Shoes': attribute 'Brand' is listed twice" in message


def test_output_folder_that_holds_something_else(catalog: Workplace) -> None:
    (catalog.folder / "out").mkdir()
    (catalog.folder / "out/precious.txt").write_text("x")
    assert "is not empty and holds no run (_plan.json); use another" in refused(catalog)
    assert [path.name for path in (catalog.folder / "out").iterdir()] == ["precious.txt"]
    assert "is a file, a folder is needed" in refused(catalog, output=str(catalog.folder / "out/precious.txt"))


def begin(workplace: Workplace, *arguments: str) -> None:
    """Leaves a begun run behind: its plan."""
    from pipelines.job.job_run import _store_plan
    from pipelines.job.preflight import plan_job

    limit = int(arguments[1]) if arguments else None
    _store_plan(plan_job(workplace.config(run_id="first"), limit))


def test_output_folder_of_another_run(catalog: Workplace) -> None:
    begin(catalog)
    place = f"output folder {catalog.folder}/out belongs to run 'first'"
    assert f"{place}, not 'second'" in refused(catalog, "--run-id", "second")
    message = refused(catalog, "--set", "engine.layout=stacked")
    assert f"{place}, which has another configuration: engine.layout: 'tree' -> 'stacked'." in message
    message = refused(catalog, "--set", "input.fields=[bullets, title]")
    assert "input.fields: [['title', 'title'], ['bullets', 'bullets']] -> " in message
    assert "which was begun without --limit, not with --limit 3; use another" in refused(catalog, "--limit", "3")
    assert "which was begun without --limit, not with --first 3; use another" in refused(catalog, "--first", "3")
    assert run(catalog, "--first", "3", "--limit", "3").exit_code == 2


def test_a_run_that_was_begun_before_there_was_a_key_goes_on(catalog: Workplace) -> None:
    begin(catalog)
    path = catalog.folder / "out/_plan.json"
    plan = json.loads(path.read_text())
    assert plan["result_config"]["engine"].pop("quantization") is None
    path.write_text(json.dumps(plan | {"config_hash": "of the configuration without it"}))
    assert run(catalog, "--dry-run").exit_code == 0
    assert plan["result_config"]["engine"].pop("numbers") == "stated"
    path.write_text(json.dumps(plan))
    assert "another configuration: engine.numbers: 'free' -> 'stated'. Use" in refused(catalog)
    assert run(catalog, "--set", "engine.numbers=free", "--dry-run").exit_code == 0
    assert "engine.quantization: not set -> 'nf4'." in refused(catalog, "--set", "engine.quantization=nf4")


def test_a_resume_with_other_schemas_or_input_is_refused(catalog: Workplace) -> None:
    begin(catalog)
    schemas = {"categories": {**SCHEMAS["categories"], "Hats": ["Brand"]}}
    (catalog.folder / "schemas.yaml").write_text(yaml.safe_dump(schemas, sort_keys=False))
    assert "the schemas in" in refused(catalog)
    (catalog.folder / "schemas.yaml").unlink()
    catalog.write_parquet("a.parquet", products(7))
    assert f"the input has changed since: {catalog.catalog}/a.parquet has changed" in refused(catalog)
    catalog.write_parquet("a.parquet", products(6))
    catalog.write_parquet("b.parquet", products(1))
    assert f"{catalog.catalog}/b.parquet is new" in refused(catalog)
    (catalog.catalog / "b.parquet").unlink()
    (catalog.catalog / "a.parquet").rename(catalog.catalog / "z.parquet")
    assert f"{catalog.catalog}/a.parquet is gone; {catalog.catalog}/z.parquet is new" in refused(catalog)


def test_dry_run_counts_and_starts_nothing(catalog: Workplace) -> None:
    catalog.write_jsonl("b.jsonl", [product(6, category="Hats"), product(7, category=None), '{"id": "p9', product(8)])
    result = run(catalog, "--dry-run", "--json", model="no/such-model")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["rows_by_category"] == {"Shoes": 4, "Coffee": 3, "Hats": 1, "": 1}
    assert {reason: told["rows"] for reason, told in answer["dead_letters"].items()} == {"broken_line": 1}
    assert "b.jsonl, row 2: not JSON: it is cut off" in answer["dead_letters"]["broken_line"]["example"]
    assert "1 row will be dead-lettered (broken_line): " in result.stderr
    assert (answer["files"], answer["rows"], answer["categories"]) == (2, 10, 4)
    assert answer["shards"] > 1
    assert answer["estimated_tokens"] > 100
    assert "no schema: will be dead-lettered" in result.stderr
    assert not (catalog.folder / "out").exists()
    assert json.loads(run(catalog, "--dry-run", "--json", "--limit", "2").stdout)["rows"] == 2
