"""CSV files as staged rows; Shopify exports become one row per product.

Shopify's product CSV: a product spans several rows (variants, images) with one handle, and becomes one row.

Most columns keep their first cell that is not empty. Columns with several values per product (variants, options,
images) become a list of the distinct values in all its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pipelines.catalog.cells import shortened
from pipelines.catalog.delimited import (
    DelimitedRecord,
    QuoteWatch,
    find_dialect,
    read_records,
    told_delimiter,
)
from pipelines.catalog.staged_rows import HIDDEN, RowWriter
from pipelines.catalog.text_files import (
    HEAD_BYTES,
    HEAD_CHARS,
    decoded,
    find_encoding,
    has_one_byte_letters,
    is_misread_utf8,
    open_unpacked,
    split_lines,
)
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError


class CsvFile:
    """A CSV file whose beginning was inspected. Raises `UsageError` if it cannot be read."""

    def __init__(self, name: str, filesystem: Any, path: str, config: InputConfig) -> None:
        self._name, self._filesystem, self._path = name, filesystem, path
        self._num_short = 0
        with open_unpacked(filesystem, path, name) as file:
            head = file.read(HEAD_BYTES)
            self.encoding, self._is_named = find_encoding(head, config.encoding), config.encoding is not None
            sample, is_cut = _beginning(self._decoded(file, head))
        self.dialect = find_dialect(sample, config.delimiter, config.quote, config.escape, is_cut=is_cut)
        self._finds_quote = config.quote is None and not self.dialect.quote
        self._has_told = told_delimiter(next(split_lines(iter([sample])), ""))
        header = next(self._read(iter([sample])), DelimitedRecord([], "", "", 1))
        if header.cells is None:
            raise UsageError(f"{name}: its first line is no row of column names: {header.problem}")
        self.names = _names(header.cells)
        if taken := HIDDEN & {*self.names}:
            raise UsageError(f"{name}: column {min(taken)!r} has a name that is ours; rename it")
        is_product = config.format == "shopify" or (config.format == "auto" and is_shopify(self.names))
        self.format = "shopify" if is_product else "csv"
        if self.format == "shopify" and not is_shopify(self.names):
            raise UsageError(
                f"{name} is no product CSV of Shopify: it has no column Handle beside Title and Option1 Name"
            )
        dialect = [self.dialect.delimiter, self.dialect.quote, self.dialect.escape]
        self.how: dict[str, Any] = {"format": self.format, "encoding": self.encoding, "dialect": dialect}

    def write(self, target: Path) -> None:
        """Write all rows to `target`. Raise `UsageError` if the file is not what its beginning suggested."""
        writer = RowWriter(target, self.names)
        quotes = QuoteWatch(self.dialect)
        with open_unpacked(self._filesystem, self._path, self._name) as file:
            records = self._read(self._decoded(file))
            next(records, None)  # the header
            self._num_short = 0
            if self._finds_quote:
                records = quotes.passed(records)
            records = map(self._without_header, records)
            if self.format == "shopify":
                write_products(records, self.names, writer)
            else:
                self._write_rows(records, writer)
        if doubt := quotes.doubt():
            raise UsageError(
                f"{self._name}: whether quotes mean anything cannot be told: {doubt}. Set input.quote: '\"' to have "
                'cells read without their quotes, and rows with an open one refused; or input.quote: "" to have quotes '
                "taken as they stand"
            )
        told = {
            "delimiter": self.dialect.delimiter,
            "dialect": str(self.dialect),
            "short": self._num_short,
        }
        writer.close({**self.how, **told})

    def _write_rows(self, records: Iterable[DelimitedRecord], writer: RowWriter) -> None:
        for number, record in enumerate(records):
            if record.cells is None:
                writer.refuse(number, "broken_line", f"line {record.line}: {record.problem}", record.text)
            else:
                writer.add(number, record.cells)

    def _without_header(self, record: DelimitedRecord) -> DelimitedRecord:
        """Return the record; mark it broken if it repeats the header."""
        self._num_short += record.num_missing > 0
        if record.cells is None or not is_header(record.cells, self.names):
            return record
        return record._replace(cells=None, problem="the names of the columns stand here again")

    def _decoded(self, file: BinaryIO, head: bytes = b"") -> Iterator[str]:
        return decoded(file, self.encoding, self._name, head, is_named=self._is_named)

    def _read(self, chunks: Iterator[str]) -> Iterator[DelimitedRecord]:
        lines = split_lines(chunks)
        if self._has_told:
            next(lines, None)
        records = read_records(lines, self.dialect)
        return map(self._refused_utf8, records) if has_one_byte_letters(self.encoding) else records

    def _refused_utf8(self, record: DelimitedRecord) -> DelimitedRecord:
        """Return the record, refused if it is UTF-8 in a file that is not: files of two encodings were concatenated."""
        if record.cells is None or not is_misread_utf8(record.text, self.encoding):
            return record
        problem = f"it is UTF-8, and the file is {self.encoding}: write the file in one encoding"
        return record._replace(cells=None, problem=problem)


def is_header(cells: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a record repeats the header (files were concatenated). `names`: the column names."""
    return len(cells) > 1 and _name(cells[0]) in (names[0], "") and _names(cells) == list(names)


def _names(cells: Sequence[str]) -> list[str]:
    return [_name(cell) or f"column {number}" for number, cell in enumerate(cells, 1)]


def _name(cell: str) -> str:
    """Return a column's name. After a byte order mark inside a file, quotes are not parsed, so strip them here.

    Files that were concatenated, or written by several programs, hold more than one such mark.
    """
    return cell.replace("\ufeff", "").strip().strip('"' if cell.startswith("\ufeff") else "")


def _beginning(chunks: Iterator[str]) -> tuple[str, bool]:
    """Return the sample of text to inspect, and whether there is more."""
    head, size = [], 0
    for chunk in chunks:
        head.append(chunk)
        size += len(chunk)
        if size > HEAD_CHARS:
            break
    return "".join(head)[:HEAD_CHARS], size > HEAD_CHARS


_HANDLES = ("handle", "url handle")
_OF_SEVERAL = re.compile(
    r"(option\d+ (value|linked to)|variant .*|image .*|sku|barcode|price|compare-at price|cost per item|price / .*"
    r"|product image url|weight .*|inventory .*|requires shipping|fulfillment service|charge tax|tax code"
    r"|continue selling when out of stock)",
    re.IGNORECASE,
)


_DEFAULT_NAME, _DEFAULT_VALUE = "Title", "Default Title"


class _Row(NamedTuple):
    number: int
    cells: Sequence[str]
    text: str


def is_shopify(names: Sequence[str]) -> bool:
    """Return whether a file with these columns is a Shopify export, in its old or new form."""
    folded = {name.casefold() for name in names}
    return not folded.isdisjoint(_HANDLES) and {"title", "option1 name"} <= folded


def write_products(records: Iterable[DelimitedRecord], names: Sequence[str], writer: RowWriter) -> None:
    """Write one row per product, with its first row's number. Refuse rows that belong to no product, and products
    without a title: their first row, which has it, is broken or has another handle."""
    title = next(index for index, name in enumerate(names) if name.casefold() == "title")
    handle = next(index for index, name in enumerate(names) if name.casefold() in _HANDLES)
    is_list = [_OF_SEVERAL.fullmatch(name) is not None for name in names]
    seen: dict[str, int] = {}
    product: list[_Row] = []
    refused: list[tuple[int, str, str]] = []

    def end_product() -> None:
        if product:
            cells, more = _merged(product, names, is_list)
            text = "".join(row.text for row in product)
            if cells[title].strip():
                writer.add(product[0].number, cells, more)
            else:
                shown = shortened(cells[handle])
                message = (
                    f"{names[title]} is empty in all rows of {names[handle]} {shown!r}: the first one is broken, or is "
                    "written otherwise"
                )
                writer.refuse(product[0].number, "broken_line", message, text)
        for number, message, text in refused:
            writer.refuse(number, "broken_line", message, text)
        product.clear()
        refused.clear()

    for number, record in enumerate(records):
        place = f"line {record.line}: "
        if record.cells is None:
            refused.append((number, place + record.problem, record.text))
            continue
        row = _Row(number, record.cells, record.text)
        name = row.cells[handle]
        if product and name == product[0].cells[handle]:
            product.append(row)
            continue
        end_product()
        if not name.strip():
            refused.append((number, place + f"{names[handle]} is empty, so it belongs to no product", record.text))
        elif (first := seen.setdefault(name, number)) != number:
            message = (
                f"{names[handle]} {shortened(name)!r} is that of row {first}, and others stand between; sort by it"
            )
            refused.append((number, place + message, record.text))
        else:
            product.append(row)
    end_product()


def _without_default(row: _Row, names: Sequence[str]) -> _Row:
    """Return the row without the default option that Shopify writes if a product has none."""
    option = {name.casefold(): index for index, name in enumerate(names)}
    place, value = option["option1 name"], option.get("option1 value")
    if value is None or row.cells[value] != _DEFAULT_VALUE or row.cells[place] not in ("", _DEFAULT_NAME):
        return row
    return row._replace(cells=[("" if index in (place, value) else cell) for index, cell in enumerate(row.cells)])


def _merged(
    product: Sequence[_Row], names: Sequence[str], is_list: Sequence[bool]
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the product's cells, and lists for the columns with several values."""
    cells, more = [], {}
    product = [_without_default(row, names) for row in product]
    for name, has_several, column in zip(
        names, is_list, zip(*(row.cells for row in product), strict=True), strict=True
    ):
        different = list(dict.fromkeys(cell for cell in column if cell))
        cells.append(different[0] if different else "")
        if has_several and len(different) > 1:
            more[name] = different
    return cells, more
