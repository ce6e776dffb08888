"""Readers of a shard's rows, and of the rows that became dead letters."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.catalog.input_files import changed
from pipelines.catalog.parquet_rows import damage, open_rows, to_rows
from pipelines.catalog.paths import belongs_to, parquet_columns
from pipelines.catalog.rows import RowRefusal, row_json
from pipelines.catalog.sharding import RowRange
from pipelines.catalog.staged_rows import read_staged
from pipelines.catalog.staging import STAGED
from pipelines.catalog.text_files import parse_line
from pipelines.errors import RunError
from pipelines.store.folders import open_filesystem

logger = logging.getLogger(__name__)

_BATCH_ROWS = 4096


class SourceRow(NamedTuple):
    """A row as read. `values` is None, and `problem` set, if it could not be read. An unreadable cell is a `CellError`.

    In JSONL, `raw` is the line. In a staged file, it is the text of a row that could not be read.
    """

    number: int
    values: dict[str, Any] | None
    problem: RowRefusal | None = None
    raw: bytes | None = None


def read_piece(
    uri: str,
    file_format: str,
    piece: RowRange,
    columns: Sequence[str] | None,
    *,
    anonymous: bool = False,
    on_read: Callable[[int], None] = lambda num_bytes: None,
) -> Iterator[SourceRow]:
    """Yield the rows of `piece`, in order; Parquet reads only `columns` (None: all). Damaged data yields a row with
    a problem. `on_read` is called with the stored bytes read of the file's data. Raise `RunError` if the file cannot be
    read or its rows differ from the plan."""
    count = 0
    try:
        for row in _rows(uri, file_format, piece, columns, anonymous, on_read):
            count += 1
            yield row
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"cannot read {uri}: {error}") from error
    if count != piece.num_rows:
        raise changed(uri, f"rows {piece.start} to {piece.stop} are no longer all there")


def pick_rows(
    uri: str,
    file_format: str,
    piece: RowRange,
    numbers: Collection[int],
    columns: Sequence[str] | None,
    *,
    anonymous: bool = False,
) -> Iterator[SourceRow]:
    """Yield the piece's rows with the given numbers. Row groups without any of them are not read. Raise `RunError` if
    the file cannot be read."""
    try:
        rows = _rows(uri, file_format, piece, columns, anonymous, lambda num_bytes: None, sorted(numbers))
        yield from (row for row in rows if row.number in numbers)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"cannot read {uri}: {error}") from error


def original_rows(
    uri: str, file_format: str, piece: RowRange, numbers: Iterable[int], *, anonymous: bool = False
) -> dict[int, str]:
    """Return the rows with the given numbers as JSON text; a broken line as it is. Raise as `pick_rows`."""
    found = {}
    for row in pick_rows(uri, file_format, piece, set(numbers), columns=None, anonymous=anonymous):
        if row.raw is not None:
            found[row.number] = row.raw.decode("utf-8", errors="replace").strip()
        elif row.values is not None:
            try:
                found[row.number] = row_json(row.values)
            except Exception:
                # The reason of the dead letter is worth more than its text.
                logger.exception("a row could not be written as JSON")
    return found


def _rows(
    uri: str,
    file_format: str,
    piece: RowRange,
    columns: Sequence[str] | None,
    anonymous: bool,
    on_read: Callable[[int], None],
    wanted: Sequence[int] | None = None,
) -> Iterator[SourceRow]:
    """Yield the rows of `piece`; at least those `wanted` (ascending numbers; None: all)."""
    # What is staged lies in a folder of the user's.
    filesystem, path = open_filesystem(uri, anonymous=anonymous and file_format != STAGED)
    if file_format == STAGED:
        return _read_staged(filesystem, path, piece, columns, on_read, wanted)
    if file_format == "parquet":
        return _read_parquet(filesystem, path, piece, columns, on_read, wanted)
    if file_format == "jsonl":
        return _read_jsonl(filesystem, path, piece, on_read)
    raise ValueError(f"no reader for {file_format}")


def _read_parquet(
    filesystem: Any,
    path: str,
    piece: RowRange,
    columns: Sequence[str] | None,
    on_read: Callable[[int], None],
    wanted: Sequence[int] | None,
) -> Iterator[SourceRow]:
    # Arrow asks for just the ranges it needs, merged; a read-ahead cache (50 MB on S3) would fetch what lies between.
    with filesystem.open(path, "rb", cache_type="none") as file:
        parquet = open_rows(file)
        names = parquet_columns(columns, parquet.schema_arrow) if columns is not None else None
        start = 0
        for group in range(parquet.metadata.num_row_groups):
            stop = start + parquet.metadata.row_group(group).num_rows
            is_needed = wanted is None or bisect_left(wanted, start) < bisect_left(wanted, stop)
            if start < piece.stop and stop > piece.start and is_needed:
                on_read(_stored_bytes(parquet.metadata.row_group(group), names))
                yield from _read_row_group(parquet, group, start, stop, piece, names)
            start = stop


def _read_staged(
    filesystem: Any,
    path: str,
    piece: RowRange,
    columns: Sequence[str] | None,
    on_read: Callable[[int], None],
    wanted: Sequence[int] | None,
) -> Iterator[SourceRow]:
    with filesystem.open(path, "rb", cache_type="none") as file:
        yield from itertools.starmap(SourceRow, read_staged(file, piece.start, piece.stop, columns, on_read, wanted))


def _stored_bytes(group: Any, columns: list[str] | None) -> int:
    """Return the stored size of a row group's columns, in bytes."""
    chunks = [group.column(index) for index in range(group.num_columns)]
    # A nested column is stored as several, each with the whole path as its name.
    wanted = [chunk for chunk in chunks if columns is None or belongs_to(chunk.path_in_schema, columns)]
    return sum(int(chunk.total_compressed_size) for chunk in wanted)


def _read_row_group(
    parquet: pq.ParquetFile, group: int, start: int, stop: int, piece: RowRange, columns: list[str] | None
) -> Iterator[SourceRow]:
    """Yield the piece's rows in one row group, which holds rows [start, stop)."""
    number = start
    try:
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns):
            first, last = max(piece.start - number, 0), min(piece.stop - number, batch.num_rows)
            if first < last:
                rows = to_rows(batch.slice(first, last - first), columns)
                yield from (SourceRow(number + first + offset, values) for offset, values in enumerate(rows))
            number += batch.num_rows
            if number >= piece.stop:
                return
    except Exception as error:
        # Damaged data stays damaged: what could not be read is lost for this run, and accounted for.
        refusal = damage(error, group)
        for unread in range(max(number, piece.start), min(stop, piece.stop)):
            yield SourceRow(unread, None, refusal)


def _read_jsonl(filesystem: Any, path: str, piece: RowRange, on_read: Callable[[int], None]) -> Iterator[SourceRow]:
    data = filesystem.cat_file(path, start=piece.byte_start, end=piece.byte_stop)
    on_read(len(data))
    for offset, line in enumerate(data.removesuffix(b"\n").split(b"\n")):
        if line.strip():
            parsed = parse_line(line)
            problem = None if parsed.problem is None else RowRefusal("broken_line", parsed.problem)
            yield SourceRow(piece.start + offset, parsed.row, problem, line)
