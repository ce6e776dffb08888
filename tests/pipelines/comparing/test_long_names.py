"""Categories of any length, script and kind: no table or page breaks, and no two look alike."""

from __future__ import annotations

import json
from pathlib import Path

from rich.cells import cell_len
from typer.testing import CliRunner

from pipelines import evaluate
from tests.pipelines.comparing.made_runs import Row, write_run

LONG = "Home/Kitchen/" + "x" * 280
NAMES = [
    LONG + "/Pots",
    LONG + "/Pans",
    "حقائب/نسائية/أحذية",
    "👟🏃‍♀️ Schuhe",
    "Shoes",
    "Shoes ",
    "Sh\u200boes",
    "鞋子" * 150,
]
WIDTHS = {"compare": 160, "evaluate": 140}


def runs(folder: Path) -> tuple[str, str]:
    return tuple(  # type: ignore[return-value]
        write_run(
            folder / name,
            [Row(f"p{n}", {"Brand": name, LONG: "1"}, category=category) for n, category in enumerate(NAMES)],
        )
        for name in "ab"
    )


def rows_of(text: str, title: str) -> list[str]:
    """The first cells of a table's rows."""
    _, _, table = text.partition(f"{title}")
    assert table, title
    lines = table.splitlines()[4:]
    return [line.split("│")[1].strip() for line in lines[: next(i for i, each in enumerate(lines) if each[:1] == "└")]]


def test_tables_of_evaluate(tmp_path: Path) -> None:
    run, _ = runs(tmp_path)
    gold = tmp_path / "gold.jsonl"
    lines = [
        json.dumps({"product_id": f"p{number}", "category": category, "values": {"Brand": ["a"]}})
        for number, category in enumerate(NAMES)
    ]
    gold.write_text("\n".join(lines))
    result = CliRunner().invoke(evaluate.app, [run, "--gold", str(gold), "--by-attribute"])
    assert result.exit_code == 0, result.output
    for title in ("By category", "By attribute"):
        cells = rows_of(result.stdout, title)
        assert len(cells) == len(set(cells)) == len(NAMES), title
    for line in result.stdout.splitlines():
        if line.startswith(("│", "┃", "┏", "└")):
            assert cell_len(line) <= WIDTHS["evaluate"], line
