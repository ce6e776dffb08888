"""Delimited text split into records and cells, each kept as it stands: quotes, line ends, encoding.

What is put together again from unchanged records is the file, byte for byte. That is why no library is used here: those
that read CSV give values, and write them anew in their own way.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipelines.errors import UsageError

_CHUNK = 1 << 20
MAX_RECORD = 1 << 26
"""Characters of one record: a quote that is never closed must not take the rest of the file into memory."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class RawRecord(NamedTuple):
    """A record: its cells without the delimiters, and what ends it; both as they stand."""

    cells: list[str]
    end: str

    @property
    def is_blank(self) -> bool:
        """Whether it is an empty line."""
        return self.cells == [""]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written.

    Attributes:
        encoding: of its values, as Python names it.
        bom: the bytes in front of the first record.
    """

    delimiter: str
    encoding: str = "utf-8"
    bom: bytes = b""
    _is_wide: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_wide", self.encoding.startswith("utf-16"))

    @classmethod
    def of(cls, head: bytes, delimiter: str, encoding: str | None = None) -> Dialect:
        """Of a file that begins with these bytes. `encoding`: what it is without a byte order mark."""
        for bom, name in _BOMS:
            if head.startswith(bom):
                return cls(delimiter, name, bom)
        return cls(delimiter, (encoding or "utf-8").lower())

    @property
    def carrier(self) -> tuple[str, str]:
        """Codec and error handler by which bytes become the text that is split, and bytes again, without a loss.

        In every encoding but UTF-16, delimiters, quotes and line ends are single bytes that are part of no letter.
        """
        return (self.encoding, "surrogatepass") if self._is_wide else ("latin-1", "strict")

    def value(self, cell: str) -> str:
        """What a raw cell says. What is no text in the encoding is replaced."""
        if len(cell) > 1 and cell[0] == cell[-1] == '"':
            cell = cell[1:-1].replace('""', '"')
        return cell if self._is_wide else cell.encode("latin-1").decode(self.encoding, "replace")

    def raw(self, value: str) -> str | None:
        """A cell that says `value`, quoted where it has to be; None if the encoding does not have its letters."""
        if re.search(rf'["\r\n{re.escape(self.delimiter)}]|^\s|\s$', value):
            value = '"' + value.replace('"', '""') + '"'
        if self._is_wide:
            return value
        try:
            return value.encode(self.encoding).decode("latin-1")
        except UnicodeEncodeError:
            return None

    def to_bytes(self, record: RawRecord) -> bytes:
        """The record as it stands in the file."""
        codec, errors = self.carrier
        return (self.delimiter.join(record.cells) + record.end).encode(codec, errors)


def read_records(stream: Any, dialect: Dialect, name: str) -> Iterator[RawRecord]:
    """The records of a binary stream that stands behind its byte order mark; one for an empty line, too.

    Quoted cells are those that begin with a quote. A quote that is not closed holds to the end of the file.

    Args:
        name: of the file, for the message.

    Raises `UsageError` if a record is longer than `MAX_RECORD`, or bytes are no UTF-16.
    """
    codec, errors = dialect.carrier
    decoder = codecs.getincrementaldecoder(codec)(errors)
    text, number, is_end = "", 0, False
    try:
        while not is_end:
            chunk = stream.read(_CHUNK)
            is_end = not chunk
            text += decoder.decode(chunk, is_end)
            position = 0
            for record, after in _complete(text, dialect.delimiter, is_end):
                yield record
                position, number = after, number + 1
            text = text[position:]
            if len(text) > MAX_RECORD:
                raise UsageError(f"{name}, record {number}: a quote is not closed within {MAX_RECORD:,} characters")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}, record {number}: what follows is no {dialect.encoding} ({error.reason})") from error


def _complete(text: str, delimiter: str, is_end: bool) -> Iterator[tuple[RawRecord, int]]:
    """The records that are whole in `text`, each with where it ends."""
    line_end, cell = _patterns(delimiter)
    start = 0
    while start < len(text):
        end = line_end.search(text, start)
        stop = end.start() if end else len(text)
        if (end is None or end.end() == len(text)) and not is_end:
            # What follows may belong to it: the second half of a line end, or of a quote.
            return
        if text.find('"', start, stop) < 0:
            record = RawRecord(text[start:stop].split(delimiter), end.group() if end else "")
            after = end.end() if end else len(text)
        else:
            found = _quoted(text, start, cell, delimiter, is_end)
            if found is None:
                return
            record, after = found
        yield record, after
        start = after


def _quoted(
    text: str, start: int, cell: re.Pattern[str], delimiter: str, is_end: bool
) -> tuple[RawRecord, int] | None:
    """The record that begins at `start`, and where it ends; None if that is not known yet."""
    cells = []
    position = start
    while True:
        found = cell.match(text, position)
        if found is None:  # a quote that is not closed
            return (RawRecord([*cells, text[position:]], ""), len(text)) if is_end else None
        cells.append(found.group())
        position = found.end()
        if text.startswith(delimiter, position):
            position += 1
            continue
        if position + 2 > len(text) and not is_end:
            return None
        end = "\r\n" if text.startswith("\r\n", position) else text[position : position + 1]
        return RawRecord(cells, end), position + len(end)


@functools.cache
def _patterns(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What ends a line; and a cell: what follows a closing quote belongs to it."""
    other = rf"[^{re.escape(delimiter)}\r\n]*"
    quoted = rf'"[^"]*(?:""[^"]*)*"(?!")'
    return re.compile(r"\r\n|\r|\n"), re.compile(rf'{quoted}{other}|(?!"){other}')
