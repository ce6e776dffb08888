"""How commands end that somebody else ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.pipelines.commands import ROOT

_TERMINATED_TWICE = """
import os, signal, sys, time
import typer
from rich.console import Console
from pipelines.console.exit_codes import run_command
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease

class InterruptedTwice(RunLease):
    def _advance(self, state):
        if state == "free":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
        return super()._advance(state)

def work():
    with InterruptedTwice(Folder(sys.argv[1]), 60).hold(Console(stderr=True)):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

sys.argv, app = sys.argv[:2], typer.Typer()
app.command()(lambda folder: run_command(work))
app()
"""


def test_a_second_sigterm_does_not_interrupt_what_the_first_one_began(tmp_path: Path) -> None:
    """`ray job stop` sends it to a `timeout` and to the command in it, and `timeout` passes its own on."""
    command = [sys.executable, "-c", _TERMINATED_TWICE, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr == "Interrupted. Run the same command again to continue.\n"
    *_, latest = sorted((tmp_path / "_lease").glob("*.json"))
    assert json.loads(latest.read_text())["state"] == "free"
