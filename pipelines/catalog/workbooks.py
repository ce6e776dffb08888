"""Workbooks: one sheet, whose first row that is not empty names the columns, except for a title above a table. Numbers
become their digits, with the leading zeros of their format. Cells merged downwards apply to all their rows.

Leading zeros that a workbook's number formats add (`00000` shows 1234 as 01234), and formulas without stored
results.

The workbook library ignores number formats, so they are read here, for .xlsx and .xlsm only, and only if a format with
leading zeros exists. Numbers of other workbooks keep their plain digits.
"""

from __future__ import annotations

import datetime
import io
import itertools
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse
from python_calamine import CalamineError, CalamineWorkbook
from xlsxwriter.utility import xl_cell_to_rowcol  # type: ignore[import-untyped]

from pipelines.catalog.cells import EXACT_DOUBLES, cell_text
from pipelines.catalog.feeds import local_name
from pipelines.catalog.staged_rows import HIDDEN, RowWriter
from pipelines.errors import UsageError

_LOOKED_AT = 20
"""Number of first rows that are searched for the column names."""
_NONE: tuple[int, Iterator[tuple[int, int, str]]] = sys.maxsize, iter(())
"""Number formats of no row."""


class SheetsError(UsageError):
    """Error for a workbook in which several sheets may be meant: `sheets`."""

    def __init__(self, name: str, sheets: Sequence[str]) -> None:
        super().__init__(
            f"{name} has several sheets with rows: name one, as input.sheet: {sheets[0]!r}; there are "
            f"{', '.join(map(repr, sheets))}"
        )
        self.sheets = sheets


class Workbook:
    """An open workbook. Raises `UsageError` if it cannot be opened, has no such sheet, or several sheets may be meant.

    A workbook is held in memory as a whole: a sheet has 1,048,576 rows at most.
    """

    def __init__(self, name: str, filesystem: Any, path: str, sheet: str | None) -> None:
        self._name = name
        try:
            self._data = filesystem.cat_file(path)
            self._book = CalamineWorkbook.from_filelike(io.BytesIO(self._data))
            self._sheet = sheet if sheet is not None else self._only_sheet()
            if self._sheet not in self._book.sheet_names:
                there = ", ".join(map(repr, self._book.sheet_names))
                raise UsageError(f"{name} has no sheet {self._sheet!r} (input.sheet); there are {there}")
            self.how = {"format": "excel", "sheet": self._sheet}
        except CalamineError as error:
            raise UsageError(
                f"{name} is no readable workbook: {error}. If it has a password, save it without; else save it again"
            ) from error

    def _only_sheet(self) -> str:
        filled = [name for name in self._book.sheet_names if self._book.get_sheet_by_name(name).height]
        if len(filled) > 1:
            raise SheetsError(self._name, filled)
        return (filled or self._book.sheet_names)[0]

    def write(self, target: Path) -> None:
        """Write all rows of the sheet to `target`. Raise `UsageError` if it cannot be read."""
        try:
            rows = self._rows()
            above, header, rows = _without_title(rows)
            names = [_text(cell).strip() or f"column {number}" for number, cell in enumerate(header, 1)]
            if taken := HIDDEN & {*names}:
                raise UsageError(f"{self._name}: column {min(taken)!r} has a name that is ours; rename it")
            writer = RowWriter(target, names)
            dates, texts = Counter[str](), set[str]()
            for number, row in enumerate(rows):
                # Whole numbers of so many digits are rounded: a record that has its id there is refused.
                more = {name: cell for name, cell in zip(names, row, strict=True) if _is_rounded(cell)}
                writer.add(number, [_text(cell) for cell in row], more=more)
                dates.update(name for name, cell in zip(names, row, strict=True) if isinstance(cell, datetime.date))
                texts.update(name for name, cell in zip(names, row, strict=True) if isinstance(cell, str) and cell)
            dated = {name: count for name, count in dates.items() if name in texts}
            unstored = num_without_result(self._data, self._sheet)
            writer.close({**self.how, "above": above, "dated": dated, "unstored": unstored})
        except (CalamineError, ParseError, DefusedXmlException) as error:
            raise UsageError(f"{self._name}, sheet {self._sheet!r}, is not readable: {error}") from error

    def _rows(self) -> Iterator[list[Any]]:
        sheet = self._book.get_sheet_by_name(self._sheet)
        if sheet.start is None:
            return
        merged = _Merged(sheet.merged_cell_ranges or ())
        left = sheet.start[1]  # rows are given from the sheet's first one on, cells from the first column that has any
        formats = itertools.groupby(zero_formats(self._data, self._sheet), key=itemgetter(0))
        at, padded = next(formats, _NONE)
        for number, row in enumerate(sheet.iter_rows()):
            while at < number:
                at, padded = next(formats, _NONE)
            for _, column, form in padded if at == number else ():
                if 0 <= column - left < len(row):  # empty cells have formats too
                    row[column - left] = _padded(row[column - left], form)
            if any(cell != "" for cell in row):
                yield merged.filled(number, row, left)


class _Merged:
    """Cells that are merged with those below them."""

    def __init__(self, ranges: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> None:
        self._ranges = sorted(each for each in ranges if each[1][0] > each[0][0])
        self._next = 0
        self._open: dict[int, tuple[int, Any]] = {}

    def filled(self, number: int, row: list[Any], left: int) -> list[Any]:
        """Return the row with merged values filled in. Rows must come in order."""
        while self._next < len(self._ranges) and self._ranges[self._next][0][0] <= number:
            (first, column), (last, _) = self._ranges[self._next]
            self._next += 1
            if first == number and 0 <= column - left < len(row):
                self._open[column - left] = last, row[column - left]
        for place, (last, value) in [*self._open.items()]:
            if number > last:
                del self._open[place]
            elif row[place] == "":
                row[place] = value
        return row


def _without_title(rows: Iterator[list[Any]]) -> tuple[list[str], list[Any], Iterator[list[Any]]]:
    """Return the text above a table, its column names, and its rows. A title is a single cell above rows of several."""
    first = list(itertools.islice(rows, _LOOKED_AT))
    counts = [sum(cell != "" for cell in row) for row in first]
    start = next((at for at, count in enumerate(counts) if count > 1), 0) if max(counts, default=0) > 2 else 0
    above = [_text(cell) for row in first[:start] for cell in row if cell != ""]
    header = first[start] if first else []
    return above, header, itertools.chain(first[start + 1 :], rows)


def _padded(cell: Any, form: str) -> Any:
    is_whole = isinstance(cell, float) and cell.is_integer() and 0 <= cell < EXACT_DOUBLES
    return with_zeros(int(cell), form) if is_whole else cell


def _is_rounded(cell: Any) -> bool:
    return isinstance(cell, float) and abs(cell) >= EXACT_DOUBLES


def _text(cell: Any) -> str:
    if not isinstance(cell, datetime.timedelta):
        return cell_text(cell, "")
    # As [h]:mm:ss shows it: 30:00:00.
    minutes, seconds = divmod(round(cell.total_seconds()), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


_PLACE = re.compile(r"\[[^\]]*\]")  # a country or a colour
_LITERAL = re.compile(r'\\(.)|"([^"]*)"')
_ZEROS = re.compile(r"0+(?:[-/ ]+0+)*")
_FORMULA = re.compile(rb"<c [^>]*\bt=\"e\"|(?:</f>|<f[^>]*/>)(?P<result><v ?/>|</c>|<v></v>|<v>0</v>|<v>)")
_LONGEST = 64  # bytes from the end of a formula to its result


def zero_formats(data: bytes, sheet: str) -> Iterator[tuple[int, int, str]]:
    """Yield the sheet's cells with a format of leading zeros: row and column from 0, and the format, such as 000-00.

    In row order. Raise `ParseError` or `DefusedXmlException` if a part of the workbook is not acceptable XML.
    """
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        names = {name.lower(): name for name in parts.namelist()}
        styles = names.get("xl/styles.xml")
        formats = _padded_styles(_elements(parts, styles)) if styles else {}
        part = names.get(_sheet_part(parts, names, sheet)) if formats else None
        if part is not None:
            yield from _padded_cells(parts, part, formats)


def num_without_result(data: bytes, sheet: str) -> int:
    """Count formulas without a stored result: programs that do not compute omit it, or write 0 for all formulas. Cells
    with an error (#N/A) count as well.
    """
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return 0
    counts: Counter[bytes | None] = Counter()
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        names = {name.lower(): name for name in parts.namelist()}
        part = names.get(_sheet_part(parts, names, sheet))
        with parts.open(part) if part else io.BytesIO() as file:
            rest = b""
            while chunk := file.read(2**20):
                text, end = rest + chunk, 0
                for found in _FORMULA.finditer(text):
                    counts[found["result"]] += 1
                    end = found.end()
                rest = text[max(end, len(text) - _LONGEST) :]
    num_zero, num_stored = counts.pop(b"<v>0</v>", 0), counts.pop(b"<v>", 0)
    return counts.total() + (0 if num_stored else num_zero)


def with_zeros(number: int, form: str) -> str:
    """Return the number in a format of zeros: digits fill it from the right, surplus digits stand before it."""
    digits = str(number).zfill(form.count("0"))
    more = len(digits) - form.count("0")
    left = iter(digits[more:])
    return digits[:more] + "".join(next(left) if sign == "0" else sign for sign in form)


def _elements(parts: zipfile.ZipFile, name: str) -> Iterator[Element]:
    with parts.open(name) as file:
        for _, element in iterparse(file):
            yield element


def _padded_styles(elements: Iterator[Element]) -> dict[str, str]:
    """Return the formats of zeros, by style number."""
    codes: dict[str, str] = {}
    styles: list[str] = []
    for element in elements:
        if local_name(element) == "numFmt":
            codes[element.get("numFmtId", "")] = _plain(element.get("formatCode", ""))
        elif local_name(element) == "cellXfs":
            styles = [style.get("numFmtId", "") for style in element]
    forms = {str(number): codes.get(style, "") for number, style in enumerate(styles)}
    return {number: form for number, form in forms.items() if form.count("0") > 1 and _ZEROS.fullmatch(form)}


def _plain(code: str) -> str:
    """Return a format's part for positive numbers, with literals and without colours and locales."""
    return _LITERAL.sub(lambda found: found[1] or found[2] or "", _PLACE.sub("", code)).split(";")[0].strip()


def _sheet_part(parts: zipfile.ZipFile, names: Mapping[str, str], sheet: str) -> str:
    """Return the lower-case name of the part that holds a sheet's cells; "" if it is not found."""
    book, links = names.get("xl/workbook.xml"), names.get("xl/_rels/workbook.xml.rels")
    if book is None or links is None:
        return ""
    ids = [
        next((value for key, value in element.items() if key.endswith("}id")), "")
        for element in _elements(parts, book)
        if local_name(element) == "sheet" and element.get("name") == sheet
    ]
    targets = {link.get("Id", ""): link.get("Target", "") for link in _elements(parts, links)}
    target = targets.get(ids[0], "").lower() if ids else ""
    return target.removeprefix("/") if target.startswith("/") else f"xl/{target}"


def _padded_cells(parts: zipfile.ZipFile, part: str, formats: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    row, above = -1, list[Any]()
    with parts.open(part) as file:
        for event, element in iterparse(file, events=("start", "end")):
            if event == "start":
                above.append(element)
                continue
            above.pop()
            if local_name(element) != "row":
                continue
            row = int(element.get("r", row + 2)) - 1
            column = -1
            for cell in element:
                column = xl_cell_to_rowcol(cell.get("r"))[1] if cell.get("r") else column + 1
                if form := formats.get(cell.get("s", "")):
                    yield row, column, form
            above[-1].clear()  # rows that were read are let go of
