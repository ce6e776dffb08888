"""Damaged files of a run's folder: whoever reads them names the file and the way out, on one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pipelines.confidence.run_confidence import CONFIDENCE_NAME, RunConfidence
from pipelines.errors import RunError, UsageError
from pipelines.export import app
from pipelines.job.carryover import CarryIndex, EarlierRun, finished_runs
from pipelines.job.clustering.clusters import Clusters
from pipelines.job.driver import run_job
from pipelines.job.preflight import FailedRows, plan_job
from pipelines.job.run_plan import find_finished, find_run
from pipelines.job.run_status import read_status
from pipelines.runs.run import Run
from pipelines.store.asked_schemas import NORMALISED_NAME, SCHEMAS_NAME, read_schemas
from pipelines.store.folders import Folder
from pipelines.store.ledger import CLUSTERS_NAME, MANIFEST_NAME, PLAN_NAME, Ledger
from tests.pipelines.conftest import Workplace, products, read_table
from tests.pipelines.exporting.made_runs import bag, write_normalised_run

SHARD = "_shards/000000.json"
READERS: dict[str, Callable[[str], object]] = {
    SCHEMAS_NAME: lambda run: read_schemas(Folder(run)),
    NORMALISED_NAME: lambda run: read_schemas(Folder(run)),
    SHARD: lambda run: Ledger(Folder(run), "").manifest(0),
    MANIFEST_NAME: find_finished,
    PLAN_NAME: find_run,
    "_engine.json": lambda run: Ledger(Folder(run), "").engine(),
    CONFIDENCE_NAME: lambda run: RunConfidence.read(Folder(run)),
    CLUSTERS_NAME: lambda run: Clusters.read(Folder(run)),
}


@pytest.fixture
def run(tmp_path: Path) -> str:
    return write_normalised_run(tmp_path / "run", [bag("b"), bag("c")])


@pytest.mark.parametrize("content", ["{", "[1]", "5", "\x00"])
@pytest.mark.parametrize("name", READERS)
def test_the_file_is_named_with_the_way_out(run: str, name: str, content: str) -> None:
    (Path(run) / name).write_text(content)
    with pytest.raises(UsageError) as caught:
        READERS[name](run)
    said = str(caught.value)
    assert said.startswith(f"cannot read {run}/{name}: it is damaged")
    assert said.endswith("Restore the file from a copy of the run, or extract anew into another output folder")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (NORMALISED_NAME, {"Bags": 5}),
        (NORMALISED_NAME, {"Bags": [{"type": "number"}]}),
        (SHARD, {}),
        (SHARD, {"tables": {"attributes": {}}}),
        (SHARD, {"tables": {}}),
        (SHARD, {"shard": 0, "tables": {}}),
        (SHARD, {"shard": 1, "tables": {}}),
        (SHARD, {"shard": 0, "tables": {"attributes": {"public": "a"}}}),
        (SHARD, {"shard": 0, "tables": {}, "counts": 5, "metrics": {}}),
    ],
)
def test_an_export_names_it_too(run: str, name: str, content: object) -> None:
    (Path(run) / name).write_text(json.dumps(content))
    with pytest.raises(UsageError, match="it is damaged"):
        Run.open_with_rows(run)
    result = CliRunner().invoke(app, [run, "--to", "csv"])
    assert result.exit_code == 2, result.output
    assert f"cannot read {run}/{name}: it is damaged" in result.stderr


def test_a_manifest_that_says_nothing_is_named_by_the_jobs_that_go_by_it(workplace: Workplace) -> None:
    workplace.write_jsonl("a.jsonl", products(3))
    config, output = workplace.config(), Folder(str(workplace.folder / "out"))
    output.write(PLAN_NAME, plan_job(config).plan.to_json())
    output.write(SCHEMAS_NAME, b"{}")
    output.write(MANIFEST_NAME, b"{}")
    assert read_status(output.uri).state == "finished"
    for read in (
        lambda: run_job(plan_job(config), Console()),
        lambda: EarlierRun.open(output.uri, Folder(str(workplace.folder / "other"))),
        lambda: FailedRows.read(output.uri),
    ):
        with pytest.raises(UsageError, match=r"manifest\.json: it is damaged"):
            read()


def test_of_several_runs_a_damaged_one_is_named_and_what_is_none_passed_over(run: str, tmp_path: Path) -> None:
    for name, content in (("web", "[]"), ("torn", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST_NAME).write_text(content)
    pattern, output = str(tmp_path / "*"), Folder(str(tmp_path / "out"))
    assert finished_runs(pattern, output) == []
    (Path(run) / MANIFEST_NAME).write_text("{")
    with pytest.raises(UsageError, match=f"{run}/{MANIFEST_NAME}: it is damaged, .* or move this run"):
        finished_runs(pattern, output)


def test_a_pattern_that_no_run_matches_is_told_and_a_run_may_be_called_like_one(
    workplace: Workplace, run: str, tmp_path: Path
) -> None:
    workplace.write_jsonl("a.jsonl", products(3))
    (tmp_path / "nights").mkdir()
    job = plan_job(workplace.config(base=str(tmp_path / "nights" / "*")))
    assert job.earlier is None
    assert (
        f"base: no finished run of this whole catalog matches {tmp_path}/nights/*: every product will be decoded"
        in job.warnings
    )
    called = Path(run).rename(tmp_path / "run[1]")
    first = read_table(called, "products")[0]["product_id"]
    workplace.write_jsonl("a.jsonl", [row | {"id": first} for row in products(1)])
    (called / MANIFEST_NAME).write_text(json.dumps({"engine": {}}))
    job = plan_job(workplace.config(base=str(called)))
    assert job.earlier is not None
    assert not [each for each in job.warnings if "base" in each]


def test_a_damaged_part_of_a_base_is_named_with_the_way_out(run: str) -> None:
    """The same command would stop there for ever."""
    (Path(run) / "products" / "part-000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"base: cannot read .*/part-000000\.parquet: .* another base or none"):
        CarryIndex.build(Folder(run))


def test_what_somebody_else_has_put_beside_the_manifests_is_no_shard(run: str) -> None:
    for name in ("Thumbs.db", "000000 (1).json", "000000.json.bak"):
        (Path(run) / "_shards" / name).write_text("{")
    assert Ledger(Folder(run), "").committed() == {0}


@pytest.mark.parametrize(
    ("name", "others"), [(SCHEMAS_NAME, ["Other"]), (NORMALISED_NAME, ["Other"]), (SCHEMAS_NAME, [])]
)
def test_an_export_of_a_category_without_a_schema_is_refused(run: str, name: str, others: list[str]) -> None:
    path = Path(run) / SCHEMAS_NAME
    (category, schema), *_ = json.loads(path.read_text()).items()
    (Path(run) / name).write_text(json.dumps(dict.fromkeys(others, schema)))
    result = CliRunner().invoke(app, [run, "--to", "csv"])
    assert result.exit_code == 2, result.output
    assert f"{run}/{name} has no category {category!r}, of which the run has answers" in result.stderr
    assert not (Path(run) / "export").exists()
