from __future__ import annotations

import pytest
import typer

from pipelines.console.exit_codes import run_command
from pipelines.console.terminal import printable
from pipelines.errors import UsageError


def test_text_of_a_catalog_cannot_steer_the_terminal() -> None:
    assert printable("red\x1b[2Jshoe\x07\x9b") == "red\ufffd[2Jshoe\ufffd\ufffd"
    assert printable("größe 東京 🙂\tline\nline") == "größe 東京 🙂\tline\nline"


def test_a_message_cannot_either(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise UsageError("column '\x1b[2J' is not there")

    with pytest.raises(typer.Exit):
        run_command(work)
    assert capsys.readouterr().err == "Error: column '\ufffd[2J' is not there\n"
