"""The `hpd` command: one screen of help, the commands behind it, and completion in a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipelines import cli
from tests.pipelines.commands import ROOT
from tests.tables import table

NAMES = [name for commands in cli.COMMANDS.values() for name in commands]


@pytest.fixture(scope="module")
def hpd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `hpd` of this checkout, as an installed one starts, in a folder for PATH."""
    script = tmp_path_factory.mktemp("bin") / "hpd"
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n")
    with script.open("a") as file:
        file.write("from pipelines.cli import main\nmain()\n")
    script.chmod(0o755)
    return script


def run(hpd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(hpd.parent), os.environ["PATH"]])
    command = ["hpd", *arguments] if not arguments or arguments[0] != "bash" else list(arguments)
    return subprocess.run(
        command, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, timeout=60
    )


def test_there_is_a_command_for_every_file_and_a_file_for_every_command() -> None:
    files = {path.stem for path in (ROOT / "pipelines").glob("*.py")} - {"__init__", "cli", "errors"}
    assert set(NAMES) == files


def test_the_package_installs_it() -> None:
    (installed,) = entry_points(group="console_scripts", name="hpd")
    assert installed.load() is cli.main


@table("name", NAMES)
def test_a_command_has_its_own_help(name: str) -> None:
    result = CliRunner().invoke(cli.app, [name, "--help"], prog_name="hpd")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: hpd {name} ")


def test_exit_codes_are_the_commands(hpd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = run(hpd, "extract", "--config", str(tmp_path / "nowhere.yaml"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == f"Error: no such file: {tmp_path / 'nowhere.yaml'}\n"
    linted = run(hpd, "schema", "lint", str(ROOT / "sample" / "schemas.yaml"))
    assert (linted.returncode, linted.stderr) == (0, "")

    stand_in = typer.Typer()

    @stand_in.command()
    def command() -> None:
        raise typer.Exit(4)

    monkeypatch.setattr("pipelines.extract.app", stand_in)
    assert CliRunner().invoke(cli.app, ["extract"], prog_name="hpd").exit_code == 4
