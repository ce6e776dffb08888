"""Workbooks: cells as their texts, one sheet, and what no workbook can hold."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError

_SHOWN: list[tuple[str, Any, str]] = [
    ("00000", 1234, "01234"),
    ("00000", 123456, "123456"),
    ("00000", 0, "00000"),
    ("[$-407]00000;@", 1067, "01067"),
    ('000\\-000" "00', 1234567, "012-345 67"),
    ("0000", 12.5, "12.5"),
    ("0000", -12, "-12"),
    ("0", 12, "12"),
    ("00.00", 5, "5"),
    ("General", 12, "12"),
    ("0000", "12", "12"),
]


pytestmark = pytest.mark.usefixtures("own_cache")


def write(path: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    book = xlsxwriter.Workbook(str(path), {"default_date_format": "yyyy-mm-dd hh:mm"})
    for name, rows in sheets.items():
        sheet = book.add_worksheet(name)
        for number, row in enumerate(rows, 2):  # not in the corner
            sheet.write_row(number, 1, row)
    book.close()
    return path


def scan(path: Path, **settings: Any) -> SourceFile:
    given = {"path": str(path), "id": "id", "category": {"text": "Bags"}, "fields": ["title"]} | settings
    return scan_sources(InputConfig.model_validate(given)).files[0]


def rows(file: SourceFile) -> list[dict[str, Any] | None]:
    return [row.values for row in read_piece(*file.rows, RowRange(0, 0, file.stop, file.num_rows), None)]


def test_cells_become_texts(tmp_path: Path) -> None:
    date = datetime.datetime(2026, 1, 2, 3, 4)
    sheet = [["id", "title", "", "since"], [7, "Bag\nred", 0.1, date], [], ["8", True, 3.0, ""]]
    file = scan(write(tmp_path / "c.xlsx", {"Products": sheet, "Notes": []}))
    assert (file.format, file.num_rows) == ("excel", 2)
    assert rows(file) == [
        {"id": "7", "title": "Bag\nred", "column 3": "0.1", "since": "2026-01-02T03:04:00"},
        {"id": "8", "title": "true", "column 3": "3", "since": ""},
    ]


def test_a_duration_is_hours_minutes_seconds(tmp_path: Path) -> None:
    durations = [datetime.timedelta(hours=30), datetime.timedelta(days=2, seconds=61), datetime.timedelta(seconds=59)]
    path = tmp_path / "c.xlsx"
    with xlsxwriter.Workbook(path, {"default_date_format": "[h]:mm:ss"}) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["id", "title"])
        for number, duration in enumerate(durations, 1):
            sheet.write_row(number, 0, [number, duration])
    assert [(row or {})["title"] for row in rows(scan(path))] == ["30:00:00", "48:01:01", "0:00:59"]


@pytest.mark.parametrize("name", ["c.xls", "c.csv", "c.export"])
def test_a_workbook_is_told_by_its_content(tmp_path: Path, name: str) -> None:
    written = write(tmp_path / "c.xlsx", {"A": [["id", "title"], [1, "Bag"]]})
    file = scan(written.rename(tmp_path / name))
    assert (file.format, rows(file)) == ("excel", [{"id": "1", "title": "Bag"}])


def test_zeros_that_a_format_shows_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.xlsx"
    book = xlsxwriter.Workbook(str(path))
    book.add_worksheet("Notes")
    sheet = book.add_worksheet("A & B")
    sheet.write_row(2, 28, ["id", "title", "more"])  # column AC
    for row, (code, number, _) in enumerate(_SHOWN, 3):
        sheet.write_row(row, 28, [f"p{row}", number], book.add_format({"num_format": code}))
    sheet.write(20, 30, 7, book.add_format({"num_format": "000"}))
    book.close()
    found = rows(scan(path, sheet="A & B"))
    assert [(row or {})["title"] for row in found[:-1]] == [shown for *_, shown in _SHOWN]
    assert found[-1] == {"id": "", "title": "", "more": "007"}


def test_which_sheet_is_meant_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "c.xlsx", {"A": [["id", "title"], ["1", "a"]], "B": [["id", "title"], ["2", "b"]]})
    with pytest.raises(
        UsageError, match=r"several sheets with rows: name one, as input.sheet: 'A'; there are 'A', 'B'"
    ):
        scan(path)
    with pytest.raises(UsageError, match=r"no sheet 'C' \(input.sheet\); there are 'A', 'B'"):
        scan(path, sheet="C")
    assert rows(scan(path, sheet="B")) == [{"id": "2", "title": "b"}]


def test_a_broken_workbook_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "c.xlsx", {"A": [["id", "title"], ["1", "a"]]})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"c\.xlsx is no readable workbook"):
        scan(path)


def test_what_is_merged_downwards_is_of_all_its_rows_and_a_title_is_no_name(tmp_path: Path) -> None:
    path = tmp_path / "c.xlsx"
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet()
        sheet.merge_range(1, 1, 1, 4, "Products of May")
        sheet.write(2, 1, "as of today")
        sheet.write_row(4, 1, ["id", "kind", "title", "size"])
        for number in range(5, 9):
            sheet.write_row(number, 1, [number, "", f"Bag {number}", number])
        sheet.merge_range(5, 2, 7, 2, "Totes")
    file = scan(path)
    kinds = {(row or {})["id"]: (row or {})["kind"] for row in rows(file)}
    assert kinds == {"5": "Totes", "6": "Totes", "7": "Totes", "8": ""}
    assert rows(file)[3] == {"id": "8", "kind": "", "title": "Bag 8", "size": "8"}


def test_one_name_above_rows_of_two_is_a_name(tmp_path: Path) -> None:
    file = scan(write(tmp_path / "c.xlsx", {"A": [["title"], ["Bag", 1], ["Tote", 2]]}), id=None)
    assert rows(file) == [{"title": "Bag", "column 2": "1"}, {"title": "Tote", "column 2": "2"}]
