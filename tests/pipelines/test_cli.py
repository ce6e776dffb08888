"""The `hpd` command: one screen of help, the commands behind it, and completion in a real shell."""

from __future__ import annotations

import os
import shutil
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


def test_the_help_fits_one_screen_and_names_every_command() -> None:
    lines = CliRunner().invoke(cli.app, ["--help"], prog_name="hpd", terminal_width=80).output.splitlines()
    assert lines[0] == "Usage: hpd [OPTIONS] COMMAND ..."
    assert len(lines) <= 22, "a prompt before it, and one after"
    assert max(map(len, lines)) < 80
    assert [name for line in lines for name in line[16:].split()[:1] if name in NAMES] == NAMES


def test_there_is_a_command_for_every_file_and_a_file_for_every_command() -> None:
    files = {path.stem for path in (ROOT / "pipelines").glob("*.py")} - {"__init__", "cli", "errors"}
    assert set(NAMES) == files


def test_the_package_installs_it() -> None:
    (installed,) = entry_points(group="console_scripts", name="hpd")
    assert installed.load() is cli.main


def test_help_imports_no_command_and_no_library(hpd: Path) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pipelines import cli;"
        "assert CliRunner().invoke(cli.app, ['--help']).exit_code == 0;"
        "print([name for name in ('torch', 'ray', 'pyarrow', 'pydantic', 'pipelines.status') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr


@table("name", NAMES)
def test_a_command_has_its_own_help(name: str) -> None:
    result = CliRunner().invoke(cli.app, [name, "--help"], prog_name="hpd")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: hpd {name} ")


def test_a_command_of_a_command_has_its_own_help() -> None:
    assert (
        CliRunner()
        .invoke(cli.app, ["schema", "lint", "--help"], prog_name="hpd")
        .output.startswith("Usage: hpd schema lint ")
    )


def test_a_wrong_name_gets_the_nearest_one() -> None:
    result = CliRunner().invoke(cli.app, ["exrtact"], prog_name="hpd")
    assert result.exit_code == 2
    assert "No such command 'exrtact'. Did you mean 'extract', 'export'?" in result.output


def test_without_a_command_it_says_which_there_are() -> None:
    result = CliRunner().invoke(cli.app, [], prog_name="hpd")
    assert (result.exit_code, "finetune" in result.output) == (2, True)


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hpd ex", ["extract", "export"]),
        ("hpd s", ["schema", "status", "serve"]),
        ("hpd extract --dry", ["--dry-run"]),
        ("hpd schema ", ["import", "propose", "lint", "diff"]),
        ("hpd evaluate run --comparison f", ["folded"]),
        ("hpd status runs/d", []),
    ],
)
def test_completion_of_commands_options_and_choices(hpd: Path, words: str, expected: list[str]) -> None:
    cword = str(len(words.split(" ")) - 1)
    bash = run(hpd, _HPD_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=cword)
    assert bash.stdout.split() == expected, bash.stderr
    zsh = run(hpd, _HPD_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=words)
    if expected:
        assert zsh.stdout.startswith("_arguments '*: :((")
        assert [line for line in expected if f'"{line}"' in zsh.stdout] == expected
    else:
        assert zsh.stdout == "_files\n", "files are looked for instead"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_what_the_shown_script_defines(hpd: Path) -> None:
    shown = run(hpd, "bash", "--norc", "-c", "hpd --show-completion; true")
    assert "complete -o default -F _hpd_completion hpd" in shown.stdout, shown.stderr
    code = f"{shown.stdout}\nCOMP_WORDS=(hpd finetune --s); COMP_CWORD=2; _hpd_completion hpd; echo ${{COMPREPLY[*]}}"
    assert run(hpd, "bash", "--norc", "-c", code).stdout == "--set\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_completion_is_installed_into_the_users_bash(hpd: Path, tmp_path: Path) -> None:
    installed = run(hpd, "bash", "--norc", "-c", "hpd --install-completion; true", HOME=str(tmp_path))
    assert "bash completion installed" in installed.stdout, installed.stderr
    code = "source ~/.bashrc; complete -p hpd"
    result = run(hpd, "bash", "--norc", "-c", code, HOME=str(tmp_path))
    assert result.stdout == "complete -o default -F _hpd_completion hpd\n", result.stderr
