"""The load test, in a small run of the command. No test here looks at speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.commands import ROOT


@pytest.mark.full
def test_the_command_measures_and_accounts_for_every_row(tmp_path: Path, tiny_model_dir: Path) -> None:
    command = [sys.executable, "bench/load_test.py", "--rows", "600"]
    command += ["--model", str(tiny_model_dir), "--folder", str(tmp_path / "load")]
    command += ["--set", "shards.target_tokens=20000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    run = facts["run"]
    assert run["totals"]["rows"] == run["row_counts"]["products"] == 600
    assert run["is_complete"]
    assert run["products_per_second"] > 0
    assert 0 < run["first_commit_seconds"] <= run["work_seconds"]
    assert run["tail_seconds"] < run["work_seconds"]
    assert {"driver", "engine", "tasks", "ray"} == set(run["usage"])
    assert all(usage["num_processes"] and usage["peak_bytes"] > 0 for usage in run["usage"].values())
    assert "products/s" in done.stdout

    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "is there already" in again.stderr
