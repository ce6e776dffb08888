"""Conversion of a Parquet batch to rows of Python values. No cell is lost or changed, or makes others unreadable."""

from __future__ import annotations

import datetime
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.catalog.cells import EXACT_DOUBLES, CellError, described, not_utf8
from pipelines.catalog.paths import (
    belongs_to,
    find_column,
    is_list,
    is_one_of,
    is_uuid,
    parquet_columns,
    type_at,
    value_type,
)
from pipelines.catalog.rows import RowRefusal, SourceRow
from pipelines.config.catalog_input import InputConfig
from pipelines.config.importing.imported import told_apart
from pipelines.errors import UsageError

logger = logging.getLogger(__name__)

_PAGES = 2**20
_BATCH_ROWS = 4096
_DAY = 24 * 60 * 60 * 10**9
_Change = Callable[[Any], Any]


def open_rows(file: Any, *, whole_groups: bool = True) -> pq.ParquetFile:
    """Open a Parquet file to read batches for `to_rows`. `whole_groups`: whole row groups will be read."""
    # Spark's and Hive's INT96 timestamps: as nanoseconds, 9999-12-31 would become a day in 1816, without a word.
    return pq.ParquetFile(
        file, pre_buffer=whole_groups, buffer_size=0 if whole_groups else _PAGES, coerce_int96_timestamp_unit="us"
    )


def read_parquet(
    file: Any,
    start: int,
    stop: int,
    columns: Sequence[str] | None,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    wanted: Sequence[int] | None = None,
    *,
    whole_groups: bool = True,
) -> Iterator[SourceRow]:
    """Yield rows [start, stop); for rows in damaged data, the reason instead. As `staged_rows.read_staged`.

    Args:
        whole_groups: whether most of each row group is needed; else little more than the rows is read.
    """
    parquet = open_rows(file, whole_groups=whole_groups)
    names = parquet_columns(columns, parquet.schema_arrow) if columns is not None else None
    end = 0
    for group in range(parquet.num_row_groups):
        stored = parquet.metadata.row_group(group)
        number, end = end, end + stored.num_rows
        if (
            number >= stop
            or end <= start
            or not (wanted is None or bisect_left(wanted, number) < bisect_left(wanted, end))
        ):
            continue
        on_read(stored_bytes(stored, names))
        try:
            for batch in parquet.iter_batches(min(_BATCH_ROWS, stop - number), row_groups=[group], columns=names):
                first, last = max(start - number, 0), min(stop - number, batch.num_rows)
                if first < last:
                    rows = to_rows(batch.slice(first, last - first), names)
                    yield from (SourceRow(number + first + offset, values) for offset, values in enumerate(rows))
                number += batch.num_rows
                if number >= stop:
                    return
        except Exception as error:
            # Damaged data stays damaged: what could not be read is lost for this run, and accounted for.
            refusal = damage(error, group)
            yield from (SourceRow(unread, None, refusal) for unread in range(max(number, start), min(end, stop)))


def stored_bytes(group: Any, columns: Sequence[str] | None, size: str = "total_compressed_size") -> int:
    """Return the stored size of a row group's columns, in bytes. `size`: the one of Arrow's sizes that is meant."""
    # A nested column is stored as several, each with the whole path as its name.
    chunks = (group.column(index) for index in range(group.num_columns))
    return sum(getattr(each, size) for each in chunks if columns is None or belongs_to(each.path_in_schema, columns))


def damage(error: Exception, group: int) -> RowRefusal:
    """Return why rows of a row group cannot be read. Raise the error again if the data is not its cause."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
        raise error  # the process's trouble, or the file system's
    if not isinstance(error, (OSError, pa.ArrowException)):
        logger.error("a row group could not be read", exc_info=error)
    return RowRefusal("unreadable", f"the file is damaged in row group {group}: {error}")


def to_rows(batch: pa.RecordBatch, columns: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the rows of a batch. A cell that cannot be read is a `CellError`.

    Args:
        columns: columns to read; a duplicated one cannot be read. None: all, with duplicates named `name (2)`.
    """
    names = batch.schema.names
    cells = [read_cells(column) for column in batch.columns]
    counts = Counter(names)
    if columns is None:
        names = told_apart([(name, "") for name in names])
    for index, name in enumerate(names):
        if columns is not None and counts[name] > 1:
            cells[index] = [CellError("doubled_column", "it stands twice in the file; rename one of the two")] * len(
                batch
            )
    if not names:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*cells, strict=True)]


def read_cells(column: pa.Array) -> list[Any]:
    """Return a column's cells. Whole float32 and float16 numbers are returned as stored, others as the shortest decimal
    that is equal."""
    change, readable = _change(column.type), _readable(column.type)
    if readable != column.type:
        column = column.cast(readable)
    try:
        cells = column.to_pylist()
        return cells if change is None else [change(cell) for cell in cells]
    except MemoryError:
        raise
    except Exception:
        # Some value is none that Python can hold: text that is not UTF-8, a date after the year 9999.
        return [_read_cell(column, index, change) for index in range(len(column))]


def _read_cell(column: pa.Array, index: int, change: _Change | None) -> Any:
    try:
        cell = column[index].as_py()
        return cell if change is None else change(cell)
    except UnicodeDecodeError as error:
        return CellError("unreadable", not_utf8(error.object, error))
    except OverflowError:
        return CellError("unreadable", "a date or time that cannot be told: years are 1 to 9999, days have 24 hours")
    except Exception as error:
        return CellError("unreadable", f"it cannot be read: {described(error)}")


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type to convert a column to before reading: its own, unless Python's objects would lose something."""
    if _is_nanoseconds(kind):
        return pa.int64()  # a `datetime.time` ends at microseconds; what is left to do, `_change` does
    if pa.types.is_timestamp(kind) and kind.tz:
        try:
            pa.lib.string_to_tzinfo(kind.tz)
        except (pa.ArrowException, ValueError, LookupError):
            return pa.timestamp(kind.unit, "UTC")  # a zone that nobody knows here: the same instant
    if is_list(kind) or pa.types.is_dictionary(kind):
        item = _readable(kind.value_type)
        if item != kind.value_type:
            return pa.list_(item) if is_list(kind) else item
    return kind


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time64(kind) and kind.unit == "ns")


def _time_of_day(nanoseconds: int) -> datetime.time | str:
    """Return the time of day, as text if it has nanoseconds. Raise `OverflowError` outside a day."""
    if not 0 <= nanoseconds < _DAY:
        raise OverflowError
    time = (datetime.datetime.min + datetime.timedelta(microseconds=nanoseconds // 1000)).time()
    return time if nanoseconds % 1000 == 0 else f"{time:%H:%M:%S}.{nanoseconds % 10**9:09d}"


def _change(kind: pa.DataType) -> _Change | None:
    """Return the conversion of this type's Python values, after Arrow has created them; None if unchanged."""
    kind = value_type(kind)
    if pa.types.is_float32(kind):
        return _unless_null(lambda value: _short_float(value, np.float32))
    if pa.types.is_float16(kind):
        return _unless_null(lambda value: _short_float(value, np.float16))
    if _is_nanoseconds(kind):
        return _unless_null(lambda value: _time_of_day(value) if isinstance(value, int) else value)
    if is_list(kind) or pa.types.is_map(kind):
        item = _change(kind.value_type if is_list(kind) else kind.item_type)
        if item is not None and is_list(kind):
            return _unless_null(lambda items: [item(each) for each in items])
        if item is not None:
            return _unless_null(lambda pairs: [(key, item(value)) for key, value in pairs])
    if pa.types.is_struct(kind):
        changes = {field.name: each for field in kind if (each := _change(field.type)) is not None}
        if changes:
            return _unless_null(lambda values: values | {name: each(values[name]) for name, each in changes.items()})
    return None


def _short_float(value: float, kind: type[np.floating[Any]]) -> float:
    """Return the stored number if it is whole, else the shortest decimal equal to it: 0.1, not 0.10000000149011612."""
    # The shortest decimal of the float16 65504 is 65500.
    return float(value) if float(value).is_integer() and abs(value) < EXACT_DOUBLES else float(str(kind(value)))


def _unless_null(change: _Change) -> _Change:
    return lambda value: None if value is None else change(value)


# Extension types whose values are what they are stored as, or have a text of their own.
_PLAIN_EXTENSIONS = ("arrow.uuid", "arrow.json", "arrow.bool8", "arrow.opaque")
_EXTENSION_KEY = b"ARROW:extension:name"


def check_column_types(config: InputConfig, schema: pa.Schema, name: str) -> None:
    """Raise `UsageError` if a mapped Parquet column is duplicated or its type can never hold what it is mapped to.

    Columns of bytes are accepted, because text is often stored so. Bytes that are not UTF-8 cost only their row.
    """
    for setting, column in config.mapped:
        field = _only_field(column, setting, schema, name)
        if field is None:
            continue
        kind = value_type(field.type)
        item = value_type(kind.value_type) if is_list(kind) else kind
        if setting == "input.id":
            is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_float64(kind)
            is_right, wanted = _is_text(kind) or is_exact or is_uuid(field.type), "text or whole numbers"
        elif setting == "input.category":
            is_right, wanted = _is_text(item if config.category.is_path else kind), "text"
        else:
            is_right, wanted = _has_text(item), "text, numbers or lists of them"
        if _extension(field) is not None or not is_right:
            raise _wrong_column(field, setting, wanted, name)


def check_doubled(config: InputConfig, names: Sequence[str], name: str) -> None:
    """Raise `UsageError` if a mapped column occurs twice among a file's column names."""
    for setting, path in config.mapped:
        column, _ = find_column(path, names) or (path, ())
        if names.count(column) > 1:
            raise _doubled(column, setting, names.count(column), name)


def byte_columns(config: InputConfig, schema: pa.Schema) -> tuple[str, ...]:
    """Return the mapped columns that hold bytes or lists of bytes: mostly text that Parquet does not mark as such."""
    types = {column: type_at(column, schema) for column in config.columns}
    kinds = {column: value_type(kind) for column, kind in types.items() if kind is not None}
    items = {column: value_type(kind.value_type) if is_list(kind) else kind for column, kind in kinds.items()}
    return tuple(column for column, kind in items.items() if _is_bytes(kind))


def _only_field(path: str, setting: str, schema: pa.Schema, name: str) -> pa.Field | None:
    """Return the field at a path, named after it; None if only the rows can tell. Raise `UsageError`."""
    column, steps = find_column(path, schema.names) or (path, ())
    places = schema.get_all_field_indices(column)
    if len(places) > 1:
        raise _doubled(column, setting, len(places), name)
    if not steps:
        return schema.field(places[0])
    try:
        kind = type_at(path, schema)
    except KeyError as error:
        step, names = error.args
        there = f"; there are {', '.join(names)}" if names else ""
        raise UsageError(f"column {path!r} ({setting}): {column!r} of {name} has no {step!r}{there}") from None
    return None if kind is None else pa.field(path, kind)


def _doubled(column: str, setting: str, count: int, name: str) -> UsageError:
    return UsageError(
        f"column {column!r} ({setting}) stands {count} times in {name}: which one is meant cannot be told; rename or "
        "drop the others"
    )


def _wrong_column(field: pa.Field, setting: str, wanted: str, name: str) -> UsageError:
    shown = _extension(field) or field.type
    column = field.name.replace('"', '""')
    is_float = setting == "input.id" and pa.types.is_floating(field.type)
    written, target = ("whole numbers", "BIGINT") if is_float else ("text", "VARCHAR")
    return UsageError(
        f"column {field.name!r} ({setting}) of {name} has the type {shown}; {wanted} are needed. Write it as {written}"
        f', in DuckDB with SELECT * REPLACE (CAST("{column}" AS {target}) AS "{column}"), or name another column'
    )


def _extension(field: pa.Field) -> str | None:
    """Return the name of an extension type whose stored values mean something else (months as numbers)."""
    name = getattr(field.type, "extension_name", None)
    if name is None and (field.metadata or {}).get(_EXTENSION_KEY):
        name = field.metadata[_EXTENSION_KEY].decode(errors="replace")
    if name is None or name in _PLAIN_EXTENSIONS:
        return None
    stored = getattr(field.type, "storage_type", field.type)
    return None if _is_written(value_type(stored)) else str(name)


def _is_written(kind: pa.DataType) -> bool:
    return is_one_of(kind, "string large_string string_view null")


def _is_text(kind: pa.DataType) -> bool:
    return _is_written(kind) or _is_bytes(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return is_one_of(kind, "binary large_binary binary_view fixed_size_binary")


def _has_text(kind: pa.DataType) -> bool:
    plain = "boolean integer floating decimal date time timestamp"
    return _is_text(kind) or is_uuid(kind) or is_one_of(kind, plain)
