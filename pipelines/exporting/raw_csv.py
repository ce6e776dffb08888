"""Raw delimited text: records with everything between them, and cells with their quotes.

Joined again, they are the file, byte for byte. Libraries return values, and write them in their own way. Here only the
division of lines into records is left to the run's reader, so that records are numbered alike.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipelines.catalog.delimited import DelimitedRecord, Dialect, read_records

_END = re.compile(r"\r\n|\r|\n|\Z")


class RawRecord(NamedTuple):
    """Record of a delimited file.

    Attributes:
        before: lines before it that belong to no record: blank ones.
        text: raw text, with its line end.
        values: values of its cells; None if it is broken.
    """

    before: str
    text: str
    values: list[str] | None


def raw_records(lines: Iterable[str], dialect: Dialect) -> Iterator[RawRecord]:
    """Yield the records of a table, its header first; at the end one without text if lines are left over.

    Joined, `before` and `text` of all of them are the lines. Records are those of `read_records`, in the same order.
    """
    seen: deque[str] = deque()

    def passed() -> Iterator[str]:
        for line in lines:
            seen.append(line)
            yield line

    line = 1
    for record in read_records(passed(), dialect):
        before = "".join(seen.popleft() for _ in range(record.line - line))
        count = _take(seen, record)
        line = record.line + count
        yield RawRecord(before, record.text, record.cells)
    if seen:
        yield RawRecord("".join(seen), "", None)


def _take(seen: deque[str], record: DelimitedRecord) -> int:
    """Remove a record's lines and return their number."""
    count = length = 0
    while length < len(record.text):
        length += len(seen.popleft())
        count += 1
    return count


def raw_cells(record: RawRecord, dialect: Dialect) -> tuple[list[str], str] | None:
    """Return a record's cells with their quotes, and its line end; None if they cannot be split as its reader did."""
    pattern = _cell(dialect)
    cells, position = [], 0
    while True:
        found = pattern.match(record.text, position)
        if found is None:
            return None
        cells.append(found.group())
        position = found.end()
        if not record.text.startswith(dialect.delimiter, position):
            break
        position += len(dialect.delimiter)
    end = _END.match(record.text, position)
    # Cells that one of the two does not have are empty.
    pairs = itertools.zip_longest((raw_value(cell, dialect) for cell in cells), record.values or (), fillvalue="")
    if end is None or end.end() != len(record.text) or any(cell != value for cell, value in pairs):
        return None
    return cells, end.group()


def raw_value(cell: str, dialect: Dialect) -> str:
    """Return the value of a raw cell."""
    quote, escape = dialect.quote, dialect.escape
    if not quote or not cell.startswith(quote):
        return cell
    inner = cell.rstrip(" ")[1:-1]
    if escape:
        return re.sub(rf"{re.escape(escape)}(.)", r"\1", inner, flags=re.DOTALL)
    return inner.replace(quote * 2, quote)


def to_raw(value: str, dialect: Dialect) -> str | None:
    """Return a raw cell for `value`, quoted if necessary; None if it needs quotes and the dialect has none."""
    special = {dialect.delimiter, dialect.quote, dialect.escape, "\r", "\n"} - {""}
    if not any(each in value for each in special) and value == value.strip():
        return value
    if not dialect.quote:
        return None
    if dialect.escape:
        pattern = rf"[{re.escape(dialect.quote + dialect.escape)}]"
        value = re.sub(pattern, lambda found: dialect.escape + found[0], value)
    else:
        value = value.replace(dialect.quote, dialect.quote * 2)
    return f"{dialect.quote}{value}{dialect.quote}"


@functools.cache
def _cell(dialect: Dialect) -> re.Pattern[str]:
    plain = rf"[^{re.escape(dialect.delimiter)}\r\n]*"
    if not dialect.quote:
        return re.compile(plain)
    quote = re.escape(dialect.quote)
    if dialect.escape:
        escape = re.escape(dialect.escape)
        inner = rf"[^{quote}{escape}]*(?:{escape}.[^{quote}{escape}]*)*"
    else:
        inner = rf"[^{quote}]*(?:{quote}{quote}[^{quote}]*)*"
    return re.compile(rf"{quote}{inner}{quote}(?!{quote})[ ]*|(?!{quote}){plain}", re.DOTALL)
