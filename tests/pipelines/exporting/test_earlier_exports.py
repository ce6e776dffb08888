"""A file that is not an export of the run is replaced only if that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.exporting.made_runs import ask, bag, exported, write_normalised_run


@pytest.fixture
def run(tmp_path: Path) -> str:
    return write_normalised_run(tmp_path / "run", [bag("b"), bag("c")])


def refused(*arguments: str) -> bool:
    code, _, error = ask(*arguments)
    return code == 2 and "--force writes over it" in error


def test_somebody_elses_file_is_kept(run: str, tmp_path: Path) -> None:
    out = tmp_path / "mine.csv"
    out.write_text("mine")
    arguments = (run, "--to", "csv", "--out", str(out))
    assert refused(*arguments)
    assert out.read_text() == "mine"
    exported(*arguments, "--force")
    assert out.read_text().startswith('"product_id"')


def test_another_runs_folder_is_no_place(run: str, tmp_path: Path) -> None:
    other = write_normalised_run(tmp_path / "other", [bag("b")])
    for place in (other, f"{other}/attributes", f"{other}/export/x.csv"):
        code, _, error = ask(run, "--to", "csv", "--out", place, "--force")
        assert (code, "is in the folder of a run" in error) == (2, True), error
