"""Delimited file with cells filled in and columns added; all else stays, byte for byte.

Raw delimited text: records with everything between them, and cells with their quotes.

Joined again, they are the file, byte for byte. Libraries return values, and write them in their own way. Here only the
division of lines into records is left to the run's reader, so that records are numbered alike.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from pipelines.catalog.csv_files import CsvFile, is_header
from pipelines.catalog.delimited import Dialect, read_records, told_delimiter
from pipelines.catalog.rows import row_id
from pipelines.catalog.text_files import decoded, open_unpacked, split_lines
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedProduct
from pipelines.exporting.details import with_detail
from pipelines.exporting.targets import Cells, Filler, TargetColumn
from pipelines.store.folders import open_filesystem

_BOMS = (
    # UTF-32's mark begins like UTF-16's.
    *((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF8, "utf-8")),
    *((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
)

NOT_WRITABLE = "letters that the file's encoding does not have"
NOT_EMPTY = "the file has a value there; --overwrite replaces it"
NO_DETAILS = "the file has a value there that is not of the form section:name:value"
NOT_SPLIT = "the row's cells cannot be told apart"


class _Hashed:
    """Binary stream that hashes every byte it reads."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        self.hash.update(data)
        return data


@dataclass(frozen=True, slots=True)
class DelimitedOriginal:
    """Delimited file that the run read.

    Attributes:
        header: names of its columns.
        config: settings by which the run read it.
    """

    name: str
    dialect: Dialect
    encoding: str
    header: Sequence[str]
    config: InputConfig

    @classmethod
    def open(cls, name: str, config: InputConfig) -> DelimitedOriginal:
        """Open the file. Raises `UsageError` if it cannot be read."""
        filesystem, path = open_filesystem(name, anonymous=config.anonymous)
        try:
            file = CsvFile(name, filesystem, path, config)
        except OSError as error:
            raise UsageError(
                f"cannot read {name}: {error.strerror or error}; --original names the one that the run read, if it was "
                "moved"
            ) from error
        return cls(name, file.dialect, file.encoding, file.names, config)

    @property
    def id_columns(self) -> Sequence[str]:
        """Columns that the products' ids are made of; empty if the run had none, or took ids from within a cell."""
        columns = self.config.id.columns if self.config.id is not None else ()
        return columns if set(columns) <= set(self.header) else ()

    @contextmanager
    def _opened(self) -> Iterator[_Hashed]:
        filesystem, path = open_filesystem(self.name, anonymous=self.config.anonymous)
        with open_unpacked(filesystem, path, self.name) as file:
            yield _Hashed(file)

    def fill(
        self,
        columns: Sequence[TargetColumn],
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
        path: Path,
    ) -> None:
        """Write the file with the products' answers in these columns to `path`.

        Raises `UsageError` if it is not the one that the run read, or cannot be reproduced byte for byte.
        """
        bom, codec = self._codec()
        kept = hashlib.sha256(bom)
        rows = _FilledRows(self, columns, products, filler, overwrites)
        with self._opened() as source, open(path, "wb") as out:
            out.write(bom)
            lines = split_lines(decoded(cast(BinaryIO, source), self.encoding, self.name))
            try:
                for before, record, text in rows.texts(lines):
                    in_front, as_it_stood = before.encode(codec), record.text.encode(codec)
                    kept.update(in_front + as_it_stood)
                    out.write(in_front + (as_it_stood if text is None else text.encode(codec)))
            except UnicodeEncodeError:
                kept = hashlib.sha256()
        if kept.digest() != source.hash.digest():
            raise UsageError(f"{self.name} cannot be kept as it is: not every byte of it comes back in {self.encoding}")

    def _codec(self) -> tuple[bytes, str]:
        with self._opened() as file:
            head = file.read(4)
        return next(((bom, codec) for bom, codec in _BOMS if head.startswith(bom)), (b"", self.encoding))

    def has_letters(self, text: str) -> bool:
        """Return whether the file's encoding has the letters of a text."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True


class _FilledRows:
    """Records of a file, with the answers of those that are products."""

    def __init__(
        self,
        original: DelimitedOriginal,
        columns: Sequence[TargetColumn],
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
    ) -> None:
        self._original, self._filler, self._overwrites = original, filler, overwrites
        self._products, self._columns = products, columns
        self._width = len(original.header)
        names = [(column.name, column.place) for column in columns]
        names += [(column.unit.name, column.unit_place) for column in columns if column.unit is not None]
        # Several attributes may share a column.
        self._new = list(dict.fromkeys(name for name, place in names if place is None))

    def texts(self, lines: Iterator[str]) -> Iterator[tuple[str, RawRecord, str | None]]:
        """Yield the text before each record, the record, and its new text; None if it stays."""
        first = next(lines, "")
        if told_delimiter(first):
            yield first, RawRecord("", "", None), None
        else:
            lines = itertools.chain([first] if first else [], lines)
        product = next(self._products, None)
        number = -1  # of the header
        for record in raw_records(lines, self._original.dialect):
            if not record.text:
                yield record.before, record, None
                continue
            if product is not None and number == product.source_row:
                self._check(product, record)
                text = self._filled(record, product)
                product = next(self._products, None)
            else:
                is_names = number < 0 or is_header(record.values or (), self._original.header)
                text = self._widened(record, self._new if is_names else [""] * len(self._new))
            yield record.before, record, text
            number += 1
        if product is not None:
            raise UsageError(
                f"{self._original.name} ends before row {product.source_row}, which the run read: it has changed; "
                "--original names the one that was read"
            )

    def _check(self, product: ExportedProduct, record: RawRecord) -> None:
        if not self._original.id_columns:
            return
        row = dict(zip(self._original.header, record.values or (), strict=False))
        found = row_id(row, self._original.config) if row else "nothing that can be read"
        if found != product.product_id:
            raise UsageError(
                f"{self._original.name}, row {product.source_row}: product {found!r}, where the run read "
                f"{product.product_id!r}; the file has changed, --original names the one that was read"
            )

    def _widened(self, record: RawRecord, values: Sequence[str]) -> str | None:
        """Return the record with further cells after its last column; None if it stays, as a broken one does."""
        if not values or record.values is None:
            return None
        split = raw_cells(record, self._original.dialect)
        dialect = self._original.dialect
        if split is None:
            # It has as many cells as the header, so more can be appended all the same.
            body = record.text.rstrip("\r\n")
            return dialect.delimiter.join([body, *map(self._raw, values)]) + record.text[len(body) :]
        cells, end = split
        cells += [""] * (self._width - len(cells))
        return dialect.delimiter.join([*cells[: self._width], *map(self._raw, values), *cells[self._width :]]) + end

    def _raw(self, value: str) -> str:
        return to_raw(value, self._original.dialect) or ""

    def _filled(self, record: RawRecord, product: ExportedProduct) -> str | None:
        found = self._filler.fill(product)
        split = raw_cells(record, self._original.dialect)
        if split is None:
            for column in found.values:
                self._filler.leave_out(column.attribute, NOT_SPLIT, product, product.values[column.attribute])
            return self._widened(record, [""] * len(self._new))
        cells, end = split
        num_cells = len(cells)
        cells += [""] * (self._width - num_cells)
        cells[self._width : self._width] = [""] * len(self._new)
        for column in found.values:
            self._put(cells, column, found, product)
        while num_cells < len(cells) <= self._width and not cells[-1]:
            del cells[-1]  # as it was
        return self._original.dialect.delimiter.join(cells) + end

    def _put(self, cells: list[str], column: TargetColumn, found: Cells, product: ExportedProduct) -> None:
        dialect, place = self._original.dialect, self._place(column.name, column.place)
        reason = None
        text: str | None = found.text(column)
        if column.detail is not None:
            cell = raw_value(cells[place], dialect)
            text = with_detail(cell, column.detail, found.text(column), overwrites=self._overwrites)
            reason = NO_DETAILS if text is None else NOT_EMPTY if text == cell else None
        wanted = [(place, text or "")]
        if column.unit is not None:
            wanted.append((self._place(column.unit.name, column.unit_place), found.units[column]))
        if column.detail is None and not self._overwrites:
            is_empty = not any(cells[place].strip(dialect.quote + " ") for place, _ in wanted)
            reason = None if is_empty else NOT_EMPTY
        raw = [(place, to_raw(text, dialect)) for place, text in wanted]
        if reason is None and not all(
            text is not None and self._original.has_letters(plain)
            for (_, text), (_, plain) in zip(raw, wanted, strict=True)
        ):
            reason = NOT_WRITABLE
        if reason is not None:
            self._filler.leave_out(column.attribute, reason, product, product.values[column.attribute])
            return
        for place, text in raw:
            cells[place] = text or ""

    def _place(self, name: str, place: int | None) -> int:
        return self._width + self._new.index(name) if place is None else place


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
        line, length = record.line, 0
        while length < len(record.text):
            length += len(seen.popleft())
            line += 1
        yield RawRecord(before, record.text, record.cells)
    if seen:
        yield RawRecord("".join(seen), "", None)


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
