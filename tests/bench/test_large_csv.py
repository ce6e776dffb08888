"""The script for CSV files of many gigabytes, on one of a few megabytes."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.schemas.schema_file import load_schemas
from tests.pipelines.commands import ROOT


def run(folder: Path, step: str, *options: str) -> dict[str, object]:
    command = [sys.executable, "-m", "bench.large_csv", "--folder", str(folder), "--step", step, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_catalog_is_as_large_as_it_should_be_and_its_rows_are_whole(tmp_path: Path) -> None:
    facts = run(tmp_path, "write", "--gigabytes", "0.002")
    with open(tmp_path / "catalog.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert int(str(facts["bytes"])) >= 2_000_000
    assert facts["rows"] == len(rows) == len({row["id"] for row in rows})
    assert {row["category"] for row in rows} == load_schemas(str(tmp_path / "schemas.yaml")).keys()
    assert len({row["description"] for row in rows}) == len(rows)
    packed = run(tmp_path, "write", "--gigabytes", "0.002", "--packed")
    with gzip.open(tmp_path / "catalog.csv.gz") as unpacked:
        assert unpacked.read() == (tmp_path / "catalog.csv").read_bytes()
    assert packed["rows"] == facts["rows"]


@pytest.mark.full
def test_a_step_says_what_it_took(tmp_path: Path) -> None:
    run(tmp_path, "write", "--gigabytes", "0.001")
    facts = run(tmp_path, "check")
    peaks = facts["peak_megabytes"]
    assert isinstance(peaks, dict)
    assert peaks["driver"] > 10
    assert len(list((tmp_path / "cache" / "rows").iterdir())) == 1
