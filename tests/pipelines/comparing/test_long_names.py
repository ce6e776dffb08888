"""Categories of any length, script and kind: no table or page breaks, and no two look alike."""

from __future__ import annotations

import json
from pathlib import Path

from rich.cells import cell_len
from typer.testing import CliRunner

from pipelines import evaluate, report, status
from tests.pipelines.browser import Page
from tests.pipelines.comparing.comparisons import ask
from tests.pipelines.comparing.made_runs import Row, write_run
from tests.tables import table

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


def test_tables_of_compare(tmp_path: Path) -> None:
    code, text, error = ask(*runs(tmp_path))
    assert code == 0, error
    cells = rows_of(text, "Agreement by category")
    assert len(cells) == len(set(cells)) == len(NAMES), "one line each, and no two alike"
    assert "'Shoes '" in cells
    assert r"'Sh\u200boes'" in cells
    for line in text.splitlines():
        if line.startswith(("│", "┃", "┏", "└")):
            assert cell_len(line) <= WIDTHS["compare"], line
            assert line.rstrip()[-1] in "│┃┓┩┘", line
    assert any(cell.endswith("/Pots") for cell in cells)


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


def test_status_and_the_report_name_them(tmp_path: Path) -> None:
    run, _ = runs(tmp_path)
    assert CliRunner().invoke(status.app, [run]).exit_code == 0
    assert CliRunner().invoke(report.app, [run]).exit_code == 0


@table("width", [1200, 390])
def test_the_page_in_a_browser(browser: Page, tmp_path: Path, width: int) -> None:
    code, _, error = ask(*runs(tmp_path), "--out", str(tmp_path / "out"))
    assert code == 0, error
    browser.open(tmp_path / "out" / "compare.html", width=width, dark=False)
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shown = browser.evaluate("[...document.querySelectorAll('#agreement tbody th bdi')].map(each => each.textContent)")
    assert len(shown) == len(set(shown)) == len(NAMES)
    assert shown.count(LONG + "/Pots") == 1, "a page has room for all of it"
    # Nothing is wider than what it stands in, but for tables, which scroll.
    wide = browser.evaluate(
        "[...document.querySelectorAll('h1, h3, p, li, dd')].filter(each => each.scrollWidth > each.clientWidth + 1 "
        "&& getComputedStyle(each).display !== 'inline').map(each => each.outerHTML.slice(0, 80))"
    )
    assert wide == []
