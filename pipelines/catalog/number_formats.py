"""Leading zeros that a workbook's number formats add (`00000` shows 1234 as 01234), and formulas without stored
results.

The workbook library ignores number formats, so they are read here, for .xlsx and .xlsm only, and only if a format with
leading zeros exists. Numbers of other workbooks keep their plain digits.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import iterparse

from pipelines.catalog.feeds import local_name

_PLACE = re.compile(r"\[[^\]]*\]")  # a country or a colour
_LITERAL = re.compile(r'\\(.)|"([^"]*)"')
_ZEROS = re.compile(r"0+(?:[-/ ]+0+)*")
_LETTERS = re.compile("[A-Z]+")
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
                column = _column(cell.get("r", "")) if cell.get("r") else column + 1
                if form := formats.get(cell.get("s", "")):
                    yield row, column, form
            above[-1].clear()  # rows that were read are let go of


def _column(place: str) -> int:
    """Return the column, from 0, of a cell reference such as AB12."""
    found = _LETTERS.match(place)
    number = 0
    for letter in found[0] if found else "":
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
