"""What the output folder alone says about a run."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pipelines import status as command
from pipelines.console.terminal import dollars
from pipelines.job.run_status import read_status
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace, product, products
from tests.pipelines.store.test_lease import silent


@pytest.fixture
def run(workplace: Workplace) -> Path:
    """A finished run of 24 products and a dead row, in some shards."""
    workplace.write_jsonl("c.jsonl", [*products(24), product(24, category="Hats")])
    workplace.run(max_dead_letter_share=1, cost={"usd_per_hour": 3.6})
    return workplace.folder / "out"


def ask(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.app, arguments)
    return result.exit_code, result.output


def undo(run: Path, num_shards: int) -> int:
    """The run as it was before its last shards were committed. Returns the rows that are left."""
    (run / "manifest.json").unlink()
    names = sorted((run / "_shards").glob("*.json"))
    for name in names[-num_shards:]:
        name.unlink()
    return sum(json.loads(name.read_text())["counts"]["rows"] for name in names[:-num_shards])


def test_a_finished_run(run: Path) -> None:
    found = read_status(str(run))
    assert (found.state, found.totals.rows, found.planned_rows) == ("finished", 25, 25)
    assert (found.seconds_left, dict(found.totals.reasons)) == (None, {"no_schema": 1})
    code, text = ask(str(run))
    assert code == 0
    assert f"finished: run {found.run_id}" in text
    assert "25 of 25 (100.0%)" in text
    assert "1 no_schema" in text
    assert f"  cost         {dollars(found.totals.metrics['cost_billed'])} for the engines" in text
    assert "    no schema for category 'Hats' (1 row)\n" in text
    assert json.loads(ask(str(run), "--json")[1])["totals"]["unknown_categories"] == {"Hats": 1}


def test_a_run_that_nobody_works_on(run: Path) -> None:
    rows = undo(run, 2)
    found = read_status(str(run))
    assert (found.state, found.totals.rows) == ("stopped", rows)
    assert len(found.shards_tried) == 2, "they were begun and are not committed"
    assert found.driver is not None
    assert str(os.getpid()) in found.driver
    code, text = ask(str(run), "--json")
    assert code == 1
    data = json.loads(text)
    assert (data["state"], data["totals"]["rows"]) == ("stopped", rows)
    assert datetime.datetime.fromisoformat(data["last_commit"]).tzinfo is not None
    assert "continues it" in ask(str(run))[1]


def test_a_run_that_somebody_works_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undo(run, 2)
    with RunLease(Folder(str(run)), 60).hold(Console(quiet=True)):
        assert read_status(str(run)).state == "running"
        assert ask(str(run))[0] == 0
    # A driver elsewhere can only be watched: one has renewed its lease no more.
    silent(Folder(str(run)), monkeypatch)
    assert read_status(str(run)).state == "stopped"
    # This one renews its lease every second. It would not run out for an hour, however seldom the thread is run.
    code = """
import sys, time
from rich.console import Console
from pipelines.store import lease
lease._host = lambda: "elsewhere"
from pipelines.store.folders import Folder
held = lease.RunLease(Folder(sys.argv[1]), 3)
held._owner["seconds"] = 3600.0
with held.hold(Console(quiet=True)):
    print("held", flush=True)
    time.sleep(3600)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(run)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        found = read_status(str(run))
        assert found.state == "running"
        assert found.driver == f"process {process.pid} on elsewhere"
    finally:
        process.kill()
        process.wait()
