"""Writers of a wide table, batch by batch: Parquet, CSV, a workbook, JSON Lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import xlsxwriter  # type: ignore[import-untyped]
from xlsxwriter.exceptions import FileCreateError  # type: ignore[import-untyped]

from hpd_core.plain_data import nested
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedProduct, LeftOutAnswers
from pipelines.exporting.wide_columns import PLACE, WideColumns, in_objects
from pipelines.exporting.wide_rows import Titles, wide_rows

MAX_SHEET_ROWS = 1_048_576 - 1
"""Rows of an Excel sheet, without its header."""
MAX_SHEET_COLUMNS = 16_384
MAX_CELL_DIGITS = 15
"""Significant digits of a number in an Excel cell; further digits become zeros."""
MAX_CELL = 32_767
"""Characters of an Excel cell."""
TOO_LONG = f"longer than {MAX_CELL:,} characters, which a cell of Excel holds"

_BATCH = 8192
_FORMULA = r"^[=+\-@\t\r]"
_PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True, slots=True)
class Style:
    """Style of written values.

    Attributes:
        separator: separator between several values in a cell; Parquet and JSON have lists instead. A value that holds
            it is in quotes, doubled within, so that no two lists are the same cell.
        guards_formulas: whether texts and names that a spreadsheet would take for a formula get an apostrophe in front.
            Numbers do not: they run nothing.
    """

    separator: str = "; "
    guards_formulas: bool = False


def _write_parquet(
    path: Path, tables: Iterable[pa.Table], columns: WideColumns, style: Style, _: LeftOutAnswers
) -> None:
    """Write Parquet; objects are structs."""
    places = columns.places
    schema = in_objects(columns.schema.empty_table(), places).schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(in_objects(table, places))


def _write_csv(
    path: Path, tables: Iterable[pa.Table], columns: WideColumns, style: Style, left_out: LeftOutAnswers
) -> None:
    """Write CSV: UTF-8, RFC 4180, texts in quotes, nothing for null."""
    schema = _flat_schema(columns.schema, style)
    with pa_csv.CSVWriter(path, schema) as writer:
        for table in tables:
            writer.write_table(_flattened(table, schema, style))


def _write_excel(
    path: Path, tables: Iterable[pa.Table], columns: WideColumns, style: Style, left_out: LeftOutAnswers
) -> None:
    """Write a workbook of one sheet, a row at a time. Texts never become formulas, links or numbers, and one that is
    too long for a cell is left out: Excel would cut it silently."""
    names, schema = columns.schema.names, _flat_schema(columns.schema, style)
    if len(names) > MAX_SHEET_COLUMNS:
        raise UsageError(
            f"{len(names):,} columns, and a sheet of Excel has {MAX_SHEET_COLUMNS:,}: export wide.parquet or csv"
        )
    book = xlsxwriter.Workbook(path, {"constant_memory": True})
    sheet = book.add_worksheet("products")
    sheet.freeze_panes(1, 0)
    for index, name in enumerate(schema.names):
        sheet.write_string(0, index, name)
    flat = (_flattened(table, schema, style) for table in tables)
    rows = (cells for table in flat for cells in zip(*(column.to_pylist() for column in table), strict=True))
    for row, cells in enumerate(rows, start=1):
        for index, value in enumerate(cells):
            if isinstance(value, str) and len(value) > MAX_CELL:
                left_out.add(names[index], TOO_LONG, cells[0], value[:200])
            elif isinstance(value, str):
                sheet.write_string(row, index, value)
            elif isinstance(value, bool):
                sheet.write_boolean(row, index, value)
            elif value is not None:
                sheet.write_number(row, index, value)
    try:
        book.close()
    except FileCreateError as error:  # the disk's own error, as an argument
        raise error.args[0] from error


def _write_jsonl(
    path: Path, tables: Iterable[pa.Table], columns: WideColumns, style: Style, left_out: LeftOutAnswers
) -> None:
    """Write one JSON object a line: the product's place, and the attributes of its category in their objects; null
    without a value."""
    places = columns.places
    names = {category: [*PLACE, *each] for category, each in columns.by_category.items()}
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for row in (row for table in tables for row in table.to_pylist()):
            values = nested((places[name], row[name]) for name in names[row["category"]])
            file.write(json.dumps(values, ensure_ascii=False) + "\n")


def _flat_schema(schema: pa.Schema, style: Style) -> pa.Schema:
    """Return the columns of a file without lists. Raises `UsageError` if guarding makes two names the same."""
    names = schema.names
    if style.guards_formulas:
        names = _guarded(pa.array(names)).to_pylist()
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise UsageError(f"--guard-formulas makes two columns {name!r}: rename one of them in the schemas")
    return pa.schema([pa.field(name, _flat_type(each.type)) for name, each in zip(names, schema, strict=True)])


def _flat_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_list(kind) else kind


def _flattened(table: pa.Table, schema: pa.Schema, style: Style) -> pa.Table:
    """Return the table with lists as texts, and formulas guarded if the style says so."""
    columns: list[Any] = []
    for field, column in zip(schema, table.columns, strict=True):
        if pa.types.is_list(column.type):
            column = in_one_cell(column.combine_chunks(), style.separator)
        if style.guards_formulas and pa.types.is_string(field.type):
            column = _guarded(column)
        columns.append(column)
    return pa.table(columns, schema=schema)


def _guarded(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    is_formula = pc.and_not(pc.match_substring_regex(texts, _FORMULA), pc.match_substring_regex(texts, _PLAIN_NUMBER))
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)


def in_one_cell(lists: pa.ListArray, separator: str) -> pa.Array:
    """Return each list as one text: values joined by the separator, in quotes if they could be misread."""
    values = pc.cast(lists.flatten(), pa.string())
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(values, '"', '""'), '"', "")
    values = pc.fill_null(pc.if_else(pc.match_substring_regex(values, _quoted(separator)), quoted, values), "")
    ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(), dtype=np.int32)
    texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(np.append(np.int32(0), ends)), values), separator)
    return pc.if_else(lists.is_valid(), texts, None)


def _quoted(separator: str) -> str:
    """Return a regular expression for values that could be read as several, as a part of one, or as a quoted one."""
    sign = separator.strip() or separator
    edge = "".join(f"\\x{{{ord(letter):x}}}" for letter in sign) + r"\s"
    return rf'^$|^["{edge}]|[{edge}]$|{re.escape(sign)}'


STEM = "products"


@dataclass(frozen=True, slots=True)
class WideKind:
    """Kind of file.

    Attributes:
        write: writes batches of rows to a file.
        only_text: whether all values are texts there, numbers as plain decimals.
        for_readers: whether it has columns for people, too.
        max_rows: most rows of a file of this kind; None without a limit.
        max_digits: most digits of a number there; None for as many as a double holds.
    """

    suffix: str
    write: Callable[[Path, Iterable[pa.Table], WideColumns, Style, LeftOutAnswers], None]
    only_text: bool = False
    for_readers: bool = False
    max_rows: int | None = None
    max_digits: int | None = None


WIDE_KINDS: Mapping[str, WideKind] = {
    "wide.parquet": WideKind(".parquet", _write_parquet),
    "csv": WideKind(".csv", _write_csv, only_text=True),
    "xlsx": WideKind(".xlsx", _write_excel, for_readers=True, max_rows=MAX_SHEET_ROWS, max_digits=MAX_CELL_DIGITS),
    "jsonl": WideKind(".jsonl", _write_jsonl),
}


def wide_tables(
    products: Iterable[ExportedProduct],
    columns: WideColumns,
    left_out: LeftOutAnswers,
    titles: Titles,
    takes_ids: bool,
    max_digits: int | None,
) -> Iterator[pa.Table]:
    """Return the rows of the products in batches, lazily."""
    products = iter(products)
    for batch in iter(lambda: list(islice(products, _BATCH)), []):
        yield wide_rows(batch, columns, left_out, titles, takes_ids=takes_ids, max_digits=max_digits)
