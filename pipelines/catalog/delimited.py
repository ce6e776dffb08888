"""CSV and its kin: how a file separates and quotes its cells, and its records, whole or refused. Pure functions.

A record that is not whole costs itself alone: its first line is refused, and reading goes on with the line behind it.
So a quote that is never closed does not swallow the file.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.catalog.cells import shortened
from pipelines.catalog.rows import MAX_CHARS
from pipelines.catalog.text_files import readable

DELIMITERS = (",", ";", "\t", "|")
_TOLD = re.compile(r"sep=(.)[\r\n]*", re.IGNORECASE)  # Excel's own first line
_QUOTED = re.compile(r'".*"', re.DOTALL)
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}

csv.field_size_limit(MAX_CHARS)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How cells are written.

    Attributes:
        quote: around a cell that holds delimiters or line ends; "" if nothing is quoted.
        escape: in front of a quote within a quoted cell; "" if it is doubled instead.
    """

    delimiter: str
    quote: str = '"'
    escape: str = ""

    def __str__(self) -> str:
        quoted = f"quoted by {self.quote}" if self.quote else "nothing quoted"
        escaped = f", escaped by {self.escape}" if self.escape else ""
        return f"{_NAMES.get(self.delimiter, self.delimiter)}, {quoted}{escaped}"

    @property
    def options(self) -> dict[str, Any]:
        """For the csv module."""
        options: dict[str, Any] = {"delimiter": self.delimiter, "strict": True}
        if not self.quote:
            options |= {"quoting": csv.QUOTE_NONE, "quotechar": None}
        else:
            options |= {"quotechar": self.quote, "doublequote": not self.escape}
        return options | ({"escapechar": self.escape} if self.escape else {})


class DelimitedRecord(NamedTuple):
    """A record: its cells, or why there are none; its text as it stands in the file, and the line where it begins."""

    cells: list[str] | None
    problem: str
    text: str
    line: int


def read_records(lines: Iterable[str], dialect: Dialect) -> Iterator[DelimitedRecord]:
    """The records of a table. The first one, its header, says how many cells each has; blank lines are none.

    Args:
        lines: with their ends, from the first line of the header on.
    """
    source, back, taken = iter(lines), deque[str](), list[str]()
    width, line = 0, 1

    def feed() -> Iterator[str]:
        while back:
            taken.append(text := back.popleft())
            yield text
        for text in source:
            taken.append(text)
            yield text

    while True:
        is_broken = False
        try:
            for cells in csv.reader(feed(), **dialect.options):
                width = width or len(cells)
                cells, problem = _fitted(cells, width)
                if problem and _is_whole(taken, dialect, width):
                    is_broken, problem = True, "a quote is not closed"
                    break
                if cells or problem:
                    yield DelimitedRecord(None if problem else cells, problem, "".join(taken), line)
                line += len(taken)
                taken.clear()
            else:
                return
        except csv.Error as error:
            is_broken, problem = True, _explained(error)
        if is_broken:
            first, *rest = taken
            yield DelimitedRecord(None, problem, first, line)
            back.extendleft(reversed(rest))
            line += 1
            taken.clear()


def _fitted(cells: list[str], width: int) -> tuple[list[str], str]:
    """The cells, as many as the header has, or what is wrong with them; no cells at all for a blank line."""
    if len(cells) == width:
        return cells, ""
    if not cells or (len(cells) == 1 and not cells[0].strip()):
        return [], ""
    if not any(cells[width:]) and len(cells) > width:
        return cells[:width], ""  # delimiters at the end of a line, as spreadsheets write them
    more = f"; behind the last column stands {shortened(readable(cells[width]))!r}" if len(cells) > width else ""
    return cells, f"{len(cells):,} cells for {width:,} columns{more}"


def _is_whole(taken: list[str], dialect: Dialect, width: int) -> bool:
    """Whether a record that does not fit has swallowed others: its second line is one by itself."""
    if len(taken) < 2:
        return False
    try:
        return len(next(csv.reader(taken[1:2], **dialect.options), [])) == width
    except csv.Error:
        return False


def _explained(error: csv.Error) -> str:
    text = str(error)
    if text.startswith("field larger"):
        return f"a cell of more than {MAX_CHARS:,} characters; is a quote not closed?"
    if text.startswith("unexpected end"):
        return "the file ends within quotes: a quote is not closed"
    if "expected after" in text:
        return "a quote stands within a quoted cell; it is written twice there, or the cell is not closed"
    return text


def find_dialect(sample: str, delimiter: str | None, quote: str | None, escape: str | None) -> Dialect:
    """How a file is written, by its beginning: the way in which most records have as many cells as the header.

    What is given is not looked for.
    """
    text = sample
    if delimiter is None and (told := _TOLD.match(sample)):
        delimiter, text = told[1], sample[told.end() :]
    lines = list(io.StringIO(text, newline=""))
    if len(lines) > 1 and len(sample) == len(text):
        del lines[-1]  # goes on behind the sample, perhaps
    quotes = [(quote if quote is not None else '"', escape or "")]
    if quote is None and escape is None:
        # With an escape, the csv module takes whatever stands behind a closing quote.
        quotes += [*([('"', "\\")] if '\\"' in sample else []), ("", "")]
    options = [
        Dialect(each, quoted, escaped)
        for quoted, escaped in quotes
        for each in ([delimiter] if delimiter is not None else DELIMITERS)
        if each not in (quoted, escaped)
    ]
    return min(options, key=lambda dialect: _misfit(lines, dialect))


def told_delimiter(first_line: str) -> bool:
    """Whether a line only says which delimiter the others have."""
    return _TOLD.fullmatch(first_line) is not None


def _misfit(lines: list[str], dialect: Dialect) -> tuple[bool, float, int]:
    """The less, the better: one column alone, the share of records that do not fit, few columns."""
    width = bad = count = 0
    for record in read_records(lines, dialect):
        width = width or len(record.cells or ())
        count += 1
        bad += record.cells is None or (not dialect.quote and any(map(_QUOTED.fullmatch, record.cells)))
    # That quotes mean nothing is believed only where they clearly do not.
    return width < 2, bad / max(1, count) * (1 if dialect.quote else 4), -width
