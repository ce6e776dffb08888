"""Staged rows: rows of a file that can only be read from its beginning, stored as Parquet for all later steps.

Every column of the file becomes a text column. Further columns hold the row's number in the file and, for a
refused row, the reason and its text. Numbers may be skipped: a product of several rows has that of its first. JSON
holds all that is more than one text: lists, nested values, columns that were unknown when the file was begun.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.catalog.cells import JsonNumber
from pipelines.catalog.parquet_rows import open_rows, stored_bytes, to_rows
from pipelines.catalog.paths import find_column
from pipelines.catalog.rows import RowRefusal, SourceRow
from pipelines.catalog.text_files import parse_line

ROW, PROBLEM, TEXT, MORE = "_hpd_row", "_hpd_problem", "_hpd_text", "_hpd_more"
_TYPES = {ROW: pa.int64(), PROBLEM: pa.string(), TEXT: pa.string(), MORE: pa.string()}
HIDDEN = frozenset(_TYPES)
"""Columns that are added to the file's own."""
_FACTS = b"hpd"
_GROUP_ROWS, _GROUP_CHARS = 8192, 2**24
_BATCH_ROWS = 4096
_MAX_PATHS = 10_000


class RowWriter:
    """Writer of rows in row groups. The file is complete once `close` has returned."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        """Create the file. `names`: column names, in order."""
        self.num_rows = self.num_refused = 0
        self._nothing = [None] * len(names)
        self._more: dict[str, None] = {}
        self._paths: dict[str, None] = {}
        self._schema = pa.schema([*((name, pa.string()) for name in names), *_TYPES.items()])
        self._file = pq.ParquetWriter(
            path, self._schema, compression="zstd", use_dictionary=False, write_statistics=[ROW], store_schema=True
        )
        self._begin_group()

    def _begin_group(self) -> None:
        self._rows: list[Sequence[str | int | None]] = []
        self._num_chars = 0

    def add(self, number: int, cells: Sequence[str | None], more: Mapping[str, Any] | None = None) -> None:
        """Add a row."""
        rest = json.dumps(more, ensure_ascii=False) if more else None
        self._append([*cells, number, None, None, rest], more or {})

    def add_line(self, number: int, text: str, row: Mapping[str, Any]) -> None:
        """Add a row that is a JSON line, `text`, with its parsed values."""
        self._append([number, None, None, text], row)

    def _see(self, path: str, value: Any) -> None:
        if len(self._paths) >= _MAX_PATHS:
            return
        items = [value]
        for item in items:
            if isinstance(item, list):
                items += item
            for name, inner in item.items() if isinstance(item, dict) else ():
                self._paths[f"{path}.{name}"] = None
                self._see(f"{path}.{name}", inner)

    def refuse(self, number: int, code: str, message: str, text: str) -> None:
        """Add a refused row."""
        self.num_refused += 1
        self._append([*self._nothing, number, json.dumps([code, message]), text, None])

    def _append(self, row: Sequence[str | int | None], more: Mapping[str, Any] = {}) -> None:
        self.num_rows += 1
        self._rows.append(row)
        self._num_chars += sum(len(cell) for cell in row if isinstance(cell, str))
        if len(self._rows) >= _GROUP_ROWS or self._num_chars >= _GROUP_CHARS:
            self._write_group()
        for name, value in more.items():
            self._more[name] = None
            self._see(name, value)

    def _write_group(self) -> None:
        cells = zip(zip(*self._rows, strict=True), self._schema.types, strict=True)
        columns = [pa.array(column, kind) for column, kind in cells]
        self._file.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._begin_group()

    def close(self, facts: Mapping[str, Any]) -> None:
        """Close the file. `facts`: further facts to store about it."""
        if self._rows:
            self._write_group()
        paths = list(self._paths) if len(self._paths) < _MAX_PATHS else None
        known = {"more": list(self._more), "paths": paths, "refused": self.num_refused, **facts}
        self._file.add_key_value_metadata({_FACTS.decode(): json.dumps(known)})
        self._file.close()


def staged_facts(parquet: pq.ParquetFile) -> dict[str, Any]:
    """Return the stored facts of a staged file; `more`: names in its JSON, `paths`: names below them, None if there are
    too many to store."""
    facts: dict[str, Any] = json.loads(parquet.metadata.metadata[_FACTS])
    return facts


def staged_names(parquet: pq.ParquetFile) -> list[str]:
    """Return the columns of the file that was staged, in order; without those in its JSON."""
    return [name for name in parquet.schema_arrow.names if name not in HIDDEN]


def row_numbers(parquet: pq.ParquetFile) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers of all rows, ascending, int64."""
    numbers: np.ndarray[Any, np.dtype[np.int64]] = parquet.read(columns=[ROW]).column(0).to_numpy()
    return numbers


def last_number(parquet: pq.ParquetFile) -> int:
    """Return the number of the last row, -1 if there is none."""
    groups = parquet.metadata.num_row_groups
    return _range(parquet.metadata.row_group(groups - 1))[1] if groups else -1


def read_staged(
    file: Any,
    start: int,
    stop: int,
    columns: Sequence[str] | None,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    wanted: Sequence[int] | None = None,
) -> Iterator[SourceRow]:
    """Yield the rows with numbers in [start, stop).

    Args:
        columns: columns to read; None for all.
        wanted: ascending row numbers; groups without any of them are not read.
    """
    parquet = open_rows(file)
    names = staged_names(parquet)
    facts = staged_facts(parquet)
    more, is_lines = facts["more"], facts["format"] == "packed jsonl"
    known = {*names, *more}
    wanted_names = known if columns is None else {found[0] for path in columns if (found := find_column(path, known))}
    needed = [name for name in dict.fromkeys(names) if name in wanted_names]
    has_more = is_lines or not wanted_names.isdisjoint(more)
    read = [*needed, ROW, PROBLEM, TEXT, *([MORE] if has_more else [])]
    metadata = parquet.metadata
    # A large file has many groups, and is read in many pieces: not every piece looks at every group.
    begin = bisect_left(range(metadata.num_row_groups), start, key=lambda group: _range(metadata.row_group(group))[1])
    for group in range(begin, metadata.num_row_groups):
        stored = metadata.row_group(group)
        first, last = _range(stored)
        if first >= stop:
            return
        if wanted is not None and bisect_left(wanted, first) == bisect_left(wanted, last + 1):
            continue
        on_read(stored_bytes(stored, read))
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=read):
            yield from _rows(batch, start, stop, columns, None if is_lines else wanted_names)


def _rows(
    batch: pa.RecordBatch, start: int, stop: int, columns: Sequence[str] | None, wanted: Collection[str] | None
) -> Iterator[SourceRow]:
    """Yield the batch's rows. `wanted`: names to read from the JSON; None: the JSON is a whole line."""
    numbers = batch.column(batch.schema.get_field_index(ROW)).to_numpy()
    first, last = np.searchsorted(numbers, [start, stop])
    batch = batch.slice(first, last - first)
    hidden = [batch.schema.get_field_index(name) for name in (PROBLEM, TEXT, MORE)]
    problems, texts, more = ([None] * len(batch) if i < 0 else batch.column(i).to_pylist() for i in hidden)
    own = batch.select([index for index, name in enumerate(batch.schema.names) if name not in HIDDEN])
    rows = to_rows(own, columns)
    for number, values, problem, text, rest in zip(
        numbers[first:last].tolist(), rows, problems, texts, more, strict=True
    ):
        if problem is not None:
            yield SourceRow(number, None, RowRefusal(*json.loads(problem)), (text or "").encode())
        elif wanted is None:
            yield SourceRow(number, parse_line((rest or "").encode()).row)
        elif rest is not None:
            beside = json.loads(rest, parse_int=JsonNumber, parse_float=JsonNumber)
            yield SourceRow(number, values | {name: value for name, value in beside.items() if name in wanted})
        else:
            yield SourceRow(number, values)


def _range(group: Any) -> tuple[int, int]:
    """Return the first and the last number in a row group."""
    for index in range(group.num_columns):
        if group.column(index).path_in_schema == ROW:
            statistics = group.column(index).statistics
            return int(statistics.min), int(statistics.max)
    raise pa.ArrowInvalid(f"no column {ROW}")
