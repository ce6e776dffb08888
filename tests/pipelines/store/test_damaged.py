"""Damaged files of a run's folder: whoever reads them names the file and the way out, on one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.errors import RunError, UsageError
from pipelines.job.carryover import CarryIndex, finished_runs
from pipelines.job.run_plan import find_finished, find_run
from pipelines.quality.run_confidence import CONFIDENCE_NAME, RunConfidence
from pipelines.store.folders import Folder
from pipelines.store.ledger import MANIFEST_NAME, PLAN_NAME, Ledger
from pipelines.store.no_run import NORMALISED_NAME, SCHEMAS_NAME, read_schemas
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


def test_of_several_runs_a_damaged_one_is_named_and_what_is_none_passed_over(run: str, tmp_path: Path) -> None:
    for name, content in (("web", "[]"), ("torn", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST_NAME).write_text(content)
    pattern, output = str(tmp_path / "*"), Folder(str(tmp_path / "out"))
    assert finished_runs(pattern, output) == []
    (Path(run) / MANIFEST_NAME).write_text("{")
    with pytest.raises(UsageError, match=f"{run}/{MANIFEST_NAME}: it is damaged, .* or move this run"):
        finished_runs(pattern, output)


def test_a_damaged_part_of_a_base_is_named_with_the_way_out(run: str) -> None:
    """The same command would stop there for ever."""
    (Path(run) / "products" / "part-000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"base: cannot read .*/part-000000\.parquet: .* another base or none"):
        CarryIndex.build(Folder(run))


def test_what_somebody_else_has_put_beside_the_manifests_is_no_shard(run: str) -> None:
    for name in ("Thumbs.db", "000000 (1).json", "000000.json.bak"):
        (Path(run) / "_shards" / name).write_text("{")
    assert Ledger(Folder(run), "").committed() == {0}
