"""Delimited text as it stands: records with all that is between them, and cells with their quotes.

What is put together again is the file, byte for byte. Libraries give values, and write them anew in their own way; here
only which lines make a record is left to the reader that the run used, so that records are numbered alike.
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
    """A record.

    Attributes:
        before: lines in front of it that are part of none: blank ones.
        text: as it stands, with its line end.
        values: of its cells; None if it is broken.
    """

    before: str
    text: str
    values: list[str] | None


def raw_records(lines: Iterable[str], dialect: Dialect) -> Iterator[RawRecord]:
    """The records of a table, its header first; at the end one without text, if lines are left that are part of none.

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
    """Takes a record's lines off; how many they are."""
    count = length = 0
    while length < len(record.text):
        length += len(seen.popleft())
        count += 1
    return count


def raw_cells(record: RawRecord, dialect: Dialect) -> tuple[list[str], str] | None:
    """A record's cells with their quotes, and its line end; None if they cannot be told apart as its reader did."""
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
    """What a raw cell says."""
    quote, escape = dialect.quote, dialect.escape
    if not quote or not cell.startswith(quote):
        return cell
    inner = cell.rstrip(" ")[1:-1]
    if escape:
        return re.sub(rf"{re.escape(escape)}(.)", r"\1", inner, flags=re.DOTALL)
    return inner.replace(quote * 2, quote)


def to_raw(value: str, dialect: Dialect) -> str | None:
    """A cell that says `value`, quoted where it has to be; None where nothing is quoted and it would have to be."""
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
