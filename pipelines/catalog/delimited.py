"""CSV and similar formats: detects the dialect and reads records, whole or refused. Pure functions.

A broken record costs only itself: its first line is refused, and reading resumes at the next line. So an unclosed quote
does not swallow the file. Cells missing at a record's end are empty, because Excel omits their delimiters.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from pipelines.catalog.cells import shortened
from pipelines.catalog.rows import MAX_CHARS

DELIMITERS = (",", ";", "\t", "|")
_TOLD = re.compile(r"sep=(.)[\r\n]*", re.IGNORECASE)  # Excel's own first line
_SINGLE = re.compile(r"(?:^|[,;\t|])'[^'\n]*'(?:[,;\t|\r\n]|\Z)", re.MULTILINE)
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}

_UNQUOTED_WEIGHT = 4
"""Weight of records that contradict a dialect without quotes: it is chosen only where quotes clearly mean nothing."""

_MAX_SHAPES = 100
_UNFINISHED = "the file ends within quotes: a quote is not closed"

csv.field_size_limit(MAX_CHARS)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Dialect of a file: how its cells are written.

    Attributes:
        quote: character around a cell that holds delimiters or line ends; "" if nothing is quoted.
        escape: character before a quote in a quoted cell; "" if the quote is doubled instead.
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
        """Options for the csv module."""
        options: dict[str, Any] = {"delimiter": self.delimiter, "strict": True}
        if not self.quote:
            options |= {"quoting": csv.QUOTE_NONE, "quotechar": None}
        else:
            options |= {"quotechar": self.quote, "doublequote": not self.escape}
        return options | ({"escapechar": self.escape} if self.escape else {})


class DelimitedRecord(NamedTuple):
    """A record: its cells, or why there are none; its text as written in the file, and its first line number.

    Attributes:
        num_missing: number of cells at its end that the text lacks.
    """

    cells: list[str] | None
    problem: str
    text: str
    line: int
    num_missing: int = 0


def read_records(lines: Iterable[str], dialect: Dialect) -> Iterator[DelimitedRecord]:
    """Yield the records of a table. The header sets the number of cells of each; blank lines are skipped.

    A short record is padded with empty cells if its first cell looks like those of whole records (an id). Otherwise, or
    next to a broken record, a line end may have cut it, and it is refused.

    Args:
        lines: lines with their ends, starting with the header.
    """
    held: DelimitedRecord | None = None
    width, is_beside_broken, is_header, beginnings = 0, False, True, set[str]()
    for record in _records(lines, dialect):
        width = width or len(record.cells or ())
        is_short = record.cells is not None and bool(record.problem)
        beginning = "" if record.cells is None else _shape(record.cells[0])
        if is_short and (is_beside_broken or (beginnings and beginning not in beginnings)):
            record, is_short = record._replace(cells=None), False
        if held is not None:
            yield held._replace(cells=None) if record.cells is None else _filled_up(held, width)
        held = record if is_short else None
        if not is_short:
            yield record
        is_beside_broken = record.cells is None
        if not is_beside_broken and not is_header and len(beginnings) < _MAX_SHAPES:
            beginnings.add(beginning)
        is_header = False
    if held is not None:
        yield _filled_up(held, width)


def _shape(cell: str) -> str:
    """Replace letters by "a" and digits by "9", so that ids of one kind become equal."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", cell.strip()))


def _filled_up(record: DelimitedRecord, width: int) -> DelimitedRecord:
    num_missing = width - len(record.cells or ())
    return record._replace(cells=[*(record.cells or ()), *[""] * num_missing], problem="", num_missing=num_missing)


def _records(lines: Iterable[str], dialect: Dialect) -> Iterator[DelimitedRecord]:
    """Yield the records; one with too few cells keeps them and has a problem."""
    source, back, taken = iter(lines), deque[str](), list[str]()
    width, line = 0, 1
    # A record that cannot be read otherwise is read without the spaces behind its quotes.
    space_after_quote, dropped = _space_after_quote(dialect), None

    def feed() -> Iterator[str]:
        while text := back.popleft() if back else next(source, ""):
            taken.append(text)
            yield text if dropped is None else dropped.sub(r"\1\2", text)

    while True:
        try:
            for cells in csv.reader(feed(), **dialect.options):
                width = width or len(cells)
                cells, problem = _fitted(cells, width)
                if problem and dialect.quote and f"{dialect.delimiter} {dialect.quote}" in taken[0]:
                    problem += "; a quote behind a space opens no cell: remove the spaces behind delimiters"
                if problem and _is_whole(taken, dialect, width):
                    problem = "a quote is not closed"
                    break
                if cells or problem:
                    text = "".join(taken)
                    is_short = len(taken) == 1 < len(cells) < width
                    kept = None if problem and not is_short else cells
                    yield DelimitedRecord(kept, _with_escape(problem, text, dialect), text, line)
                line += len(taken)
                taken.clear()
                dropped = None
            else:
                return
        except csv.Error as error:
            problem, is_after = _explained(error), "expected after" in str(error)
            if dropped is None and space_after_quote and is_after and any(map(space_after_quote.search, taken)):
                dropped = space_after_quote
                back.extendleft(reversed(taken))
                taken.clear()
                continue
        first, *rest = taken
        yield DelimitedRecord(None, _with_escape(problem, first, dialect), first, line)
        back.extendleft(reversed(rest))
        line += 1
        taken.clear()
        dropped = None


def _space_after_quote(dialect: Dialect) -> re.Pattern[str] | None:
    if not dialect.quote or dialect.escape:
        return None
    quote, delimiter = re.escape(dialect.quote), re.escape(dialect.delimiter)
    return re.compile(rf"(\A|{delimiter})({quote}(?:[^{quote}]|{quote}{quote})*{quote})[ ]+(?={delimiter}|[\r\n]|\Z)")


def _fitted(cells: list[str], width: int) -> tuple[list[str], str]:
    """Return the cells, fitted to the header's width, and the problem or ""; a blank line returns no cells."""
    if len(cells) == width:
        return cells, ""
    if not cells or (len(cells) == 1 and not cells[0].strip()):
        return [], ""
    if not any(cells[width:]) and len(cells) > width:
        return cells[:width], ""  # delimiters at the end of a line, as spreadsheets write them
    more = f"; behind the last column stands {shortened(cells[width])!r}" if len(cells) > width else ""
    return cells, f"{len(cells):,} {'cell' if len(cells) == 1 else 'cells'} for {width:,} columns{more}"


def _with_escape(problem: str, text: str, dialect: Dialect) -> str:
    """Return the problem, with the settings to try if quotes may be escaped as MySQL does."""
    if not problem or not dialect.quote or dialect.escape or f"\\{dialect.quote}" not in text:
        return problem
    quoted = f'"{dialect.quote}"' if dialect.quote == "'" else f"'{dialect.quote}'"
    given = rf"input.quote: {quoted} and input.escape: '\'"
    return f"{problem}; a backslash stands in front of a quote: if that quote is a part of its cell, set {given}"


def _is_whole(taken: list[str], dialect: Dialect, width: int) -> bool:
    """Return whether a record that does not fit has swallowed others: its second line alone is a whole record."""
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
        return _UNFINISHED
    if "expected after" in text:
        return "a quote stands within a quoted cell; it is written twice there, or the cell is not closed"
    return text


def find_dialect(
    sample: str, delimiter: str | None, quote: str | None, escape: str | None, *, is_cut: bool = False
) -> Dialect:
    """Detect a file's dialect from its beginning: the one in which most records have as many cells as the header.

    Options that are given are not detected.

    Args:
        is_cut: whether the file continues after the sample, perhaps within a record.
    """
    text = sample
    if delimiter is None and (told := _TOLD.match(sample)):
        delimiter, text = told[1], sample[told.end() :]
    lines = list(io.StringIO(text, newline=""))
    quotes = [(quote if quote is not None else '"', escape or "")]
    if quote is None and escape is None:
        # With an escape, the csv module takes whatever stands behind a closing quote.
        quotes += [("'", "")] * (_SINGLE.search(sample) is not None)
        quotes += [*([('"', "\\")] if '\\"' in sample else []), ("", "")]
    best: list[tuple[_Misfit, Dialect]] = []
    for quoted, escaped in quotes:
        delimiters = (delimiter,) if delimiter is not None else DELIMITERS
        options = [Dialect(each, quoted, escaped) for each in delimiters if each not in (quoted, escaped)]
        best += sorted(((_misfit(lines, each, is_cut), each) for each in options), key=itemgetter(0))[:1]
        # Where quotes explain all that is there, they are meant, even if there is but one column.
        if best and not best[-1][0].share:
            break
    return min(best, key=itemgetter(0))[1]


def told_delimiter(first_line: str) -> bool:
    """Return whether a line only declares the delimiter of the others (`sep=;`)."""
    return _TOLD.fullmatch(first_line) is not None


class _Misfit(NamedTuple):
    """Misfit of a dialect on a sample; smaller is better."""

    is_one_column: bool
    share: float
    fewness: int


def _misfit(lines: list[str], dialect: Dialect, is_cut: bool) -> _Misfit:
    width, unfinished = 0, -1
    fits: list[bool] = []
    for record in _records(lines, dialect):
        width = width or len(record.cells or ())
        if record.problem.startswith(_UNFINISHED) and unfinished < 0:
            unfinished = len(fits)
        fits.append(not record.problem and (bool(dialect.quote) or not looks_quoted(record.text, dialect)))
    if is_cut and len(fits) > 1:
        del fits[_goes_on(fits, unfinished) :]
    share = fits.count(False) / max(1, len(fits)) * (1 if dialect.quote else _UNQUOTED_WEIGHT)
    return _Misfit(width < 2, share, -width)


def _goes_on(fits: list[bool], unfinished: int) -> int:
    """Return the index of the record that continues after the sample: the last, or the one with an unclosed cell.

    The lines of such a cell follow it as records. If they are many, and most are whole, the quote means nothing.
    """
    behind = fits[unfinished + 1 :]
    is_cell = unfinished > 0 and (sum(behind) * 2 <= len(behind) or len(behind) * 8 < len(fits))
    return unfinished if is_cell else len(fits) - 1


def looks_quoted(text: str, dialect: Dialect) -> bool:
    """Return whether the text holds a quoted cell, or several separated by this dialect's delimiter."""
    border = re.escape(dialect.delimiter)
    return re.search(rf'(?:\A|{border})"(?:[^"]|"")*"(?={border}|[\r\n]*\Z)', text) is not None


class QuoteWatch:
    """Detector of quotes that mean something after all, in a table whose beginning suggested otherwise."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._begins = re.compile(rf'(?:\A|{re.escape(dialect.delimiter)})"')
        self._open: list[DelimitedRecord] = []
        self._quoted: list[DelimitedRecord] = []
        self._num_open = self._num_quoted = 0

    def passed(self, records: Iterable[DelimitedRecord]) -> Iterator[DelimitedRecord]:
        """Yield the records unchanged, and count those with quotes."""
        for record in records:
            if '"' in record.text and self._begins.search(record.text):
                if looks_quoted(record.text, self._dialect):
                    self._num_quoted += 1
                    self._quoted = self._quoted or [record]
                else:
                    self._num_open += 1
                    self._open = self._open or [record]
            yield record

    def doubt(self) -> str:
        """Return why quotes seem to mean something after all; "" if they do not."""
        if self._num_quoted * _UNQUOTED_WEIGHT <= self._num_open or not self._quoted:
            return ""
        found = f"line {self._quoted[0].line:,} has a cell in quotes"
        if not self._open:
            return found
        return f"{found}, and line {self._open[0].line:,} a quote that is not closed"
