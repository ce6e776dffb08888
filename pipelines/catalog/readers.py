"""Readers of a shard's rows, and of the rows that became dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pipelines.catalog.input_files import changed
from pipelines.catalog.parquet_rows import read_parquet
from pipelines.catalog.rows import RowRefusal, SourceRow, row_json
from pipelines.catalog.sharding import RowRange
from pipelines.catalog.staged_rows import read_staged
from pipelines.catalog.staging import STAGED
from pipelines.catalog.text_files import parse_line
from pipelines.errors import RunError
from pipelines.store.folders import open_filesystem


def read_piece(
    uri: str,
    file_format: str,
    piece: RowRange,
    columns: Sequence[str] | None,
    *,
    anonymous: bool = False,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    numbers: Collection[int] | None = None,
) -> Iterator[SourceRow]:
    """Yield the rows of `piece`, in order; Parquet reads only `columns` (None: all). Damaged data yields a row with
    a problem. `on_read` is called with the stored bytes read of the file's data. `numbers`: of the only rows that are
    wanted; row groups without any of them are not read. Raise `RunError` if the file cannot be read or its rows differ
    from the plan."""
    count, wanted = 0, None if numbers is None else sorted(numbers)
    try:
        for row in _rows(uri, file_format, piece, columns, anonymous, on_read, wanted):
            if numbers is None or row.number in numbers:
                count += 1
                yield row
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"cannot read {uri}: {error}") from error
    if numbers is None and count != piece.num_rows:
        raise changed(uri, f"rows {piece.start} to {piece.stop} are no longer all there")


def original_rows(
    uri: str, file_format: str, piece: RowRange, numbers: Iterable[int], *, anonymous: bool = False
) -> dict[int, str]:
    """Return the rows with the given numbers as JSON text; a broken line as it is. Raise as `read_piece`."""
    found = {}
    for row in read_piece(uri, file_format, piece, None, anonymous=anonymous, numbers=set(numbers)):
        if row.raw is not None:
            found[row.number] = row.raw.decode("utf-8", errors="replace").strip()
        elif row.values is not None:
            with suppress(ValueError, TypeError, RecursionError):  # the reason of the dead letter is worth more
                found[row.number] = row_json(row.values)
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
    if file_format == "jsonl":
        yield from _read_jsonl(filesystem, path, piece, on_read)
        return
    read = read_staged if file_format == STAGED else read_parquet
    # Arrow asks for just the ranges it needs, merged; a read-ahead cache (50 MB on S3) would fetch what lies between.
    with filesystem.open(path, "rb", cache_type="none") as file:
        yield from read(file, piece.start, piece.stop, columns, on_read, wanted)


def _read_jsonl(filesystem: Any, path: str, piece: RowRange, on_read: Callable[[int], None]) -> Iterator[SourceRow]:
    data = filesystem.cat_file(path, start=piece.byte_start, end=piece.byte_stop)
    on_read(len(data))
    for offset, line in enumerate(data.removesuffix(b"\n").split(b"\n")):
        if line.strip():
            parsed = parse_line(line)
            problem = None if parsed.problem is None else RowRefusal("broken_line", parsed.problem)
            yield SourceRow(piece.start + offset, parsed.row, problem, line)
