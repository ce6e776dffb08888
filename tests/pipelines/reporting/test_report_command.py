"""The command: the files it writes, and one line for whatever is wrong with its arguments or the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.pipelines.reporting.reports import ask


def test_the_command_writes_three_files_beside_the_run_or_elsewhere(run: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "pipelines.cli", "report", str(run), "--usd-per-hour", "2"]
    ended = subprocess.run(
        arguments, capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"COLUMNS": "20"}
    )
    assert "15 values found in 6 products" in ended.stdout
    assert "6 products: $0.100" in ended.stdout
    for name in ("report.html", "report.json"):
        assert (run / name).stat().st_size > 1000
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    code, text = ask(run, "--out", tmp_path / "elsewhere", "--json", "--sample", 1)
    assert code == 0
    data = json.loads(text)
    assert data["files"][-1] == f"{tmp_path}/elsewhere/report.html"
    assert data["totals"]["decoded"] == 5
    assert data["sample"]["size"] == 1
    assert before == {path: path.stat().st_mtime_ns for path in run.iterdir()}
    assert "Report: " in ask(run, "--brief")[1]


def test_bad_input(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "gold.jsonl").write_text('{"product_id": "other", "category": "Tea", "values": {"Brand": null}}')
    (tmp_path / "broken.jsonl").write_text("{")
    for arguments, expected in [
        ([tmp_path / "nowhere"], "there is no run"),
        ([tmp_path / "file"], "is a file"),
        ([tmp_path], "there is no run in"),
        ([run, "--gold", tmp_path / "nowhere.jsonl"], "no such gold file"),
        ([run, "--gold", tmp_path / "gold.jsonl"], "does not belong to"),
        ([run, "--gold", tmp_path / "broken.jsonl"], "line 1: not JSON"),
        ([run, "--forecast", tmp_path / "nowhere.json"], "there is no forecast"),
        ([run, "--forecast", tmp_path / "file"], "cannot read"),
        ([run, "--out", tmp_path / "file"], "is a file"),
        ([run, "--usd-per-hour", "inf"], "is no price"),
    ]:
        code, text = ask(*arguments)
        assert code == 2, arguments
        assert expected in text
        assert len(text.strip().splitlines()) == 1, text
    assert not (run / "report.html").exists()
