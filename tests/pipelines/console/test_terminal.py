from __future__ import annotations

import io

import pytest
import typer
from rich.console import Console

from pipelines.console.exit_codes import run_command
from pipelines.console.terminal import SafeTable, printable
from pipelines.errors import UsageError
from tests.tables import table


def test_text_of_a_catalog_cannot_steer_the_terminal() -> None:
    assert printable("red\x1b[2Jshoe\x07\x9b") == "red\ufffd[2Jshoe\ufffd\ufffd"
    assert printable("größe 東京 🙂\tline\nline") == "größe 東京 🙂\tline\nline"


def test_a_message_cannot_either(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise UsageError("column '\x1b[2J' is not there")

    with pytest.raises(typer.Exit):
        run_command(work)
    assert capsys.readouterr().err == "Error: column '\ufffd[2J' is not there\n"


@table("columns", [("product", "other"), ()])
def test_long_names_in_a_table_are_never_cut(columns: tuple[str, ...]) -> None:
    table = SafeTable(*columns)
    if not columns:
        table.add_column("product")
        table.add_column("other")
    names = [f"Camera-and-photo-accessories-for-small-devices-{end}" for end in ("indoors", "outdoors")]
    for name in names:
        table.add_row(name, "x")
    out = io.StringIO()
    Console(file=out, width=30).print(table)
    cells = [line.split("│")[1].strip() for line in out.getvalue().splitlines() if line.startswith("│")]
    assert "".join(cells) == "".join(names)
    assert "…" not in out.getvalue()
