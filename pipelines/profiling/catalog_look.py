"""Reading as much of a catalog as it takes to say what is in it: some rows whole, of the others the category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

from pipelines.catalog.cells import category_text
from pipelines.catalog.finding import FoundFile, find_files
from pipelines.catalog.input_files import open_parquet
from pipelines.catalog.json_lines import parse_line
from pipelines.catalog.left_out import LeftOut
from pipelines.catalog.parquet_rows import open_rows, read_cells
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import Piece
from pipelines.errors import RunError, UsageError
from pipelines.profiling.columns import Column, arrow_kinds, look_at
from pipelines.store.folders import open_filesystem

_MAX_ROWS = 10_000  # looked at whole
_MAX_FILES = 50  # from which they are taken
_MAX_BYTES = 64 * 2**20  # of one JSONL file
MAX_COUNTED = 2_000_000  # rows whose category is counted


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be looked into: a file, a folder or a glob, and how it is read."""

    path: str
    format: Literal["auto", "parquet", "jsonl"] = "auto"
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A catalog, as far as it was looked at.

    Attributes:
        num_rows: of all files.
        sample: the rows that were looked at.
        doubled: columns that stand twice in a Parquet file, so that none of them can be meant; with that file.
    """

    source: Source
    files: Sequence[FoundFile]
    left_out: LeftOut
    num_rows: int
    columns: Sequence[Column]
    sample: Sequence[dict[str, Any]]
    doubled: Mapping[str, str]


def look_into(source: Source) -> Look:
    """Looks into the files at `source`. Raises `UsageError` for what cannot be read."""
    found = find_files([source.path], source.format, anonymous=source.anonymous)
    files = found.files
    share = -(-_MAX_ROWS // min(len(files), _MAX_FILES))
    types: dict[str, pa.DataType] = {}
    names_in_file: list[set[str]] = []
    sample: list[dict[str, Any]] = []
    doubled: dict[str, str] = {}
    num_rows = 0
    for number, file in enumerate(files):
        with _readable(file.name):
            file_rows, file_types, file_doubled = _measure(file, source)
            doubled |= dict.fromkeys(file_doubled, file.name)
            num_rows += file_rows
            for column, kind in file_types.items():
                if column not in types or pa.types.is_null(types[column]):
                    types[column] = kind
            if number < _MAX_FILES:
                rows = list(islice(_whole_rows(file, source, file_rows, file_types), share)) if file_rows else []
                sample += rows
                names_in_file.append(set(file_types) or {column for row in rows for column in row})
    if num_rows and not sample:
        raise UsageError(f"{files[0].name}: none of its first rows can be read; in JSONL, a line is one JSON object")
    columns = look_at(sample, types)
    for each in columns:
        each.is_everywhere = all(each.name in names for names in names_in_file if names)
    return Look(source, files, found.left_out, num_rows, columns, sample, doubled)


def count_categories(look: Look, column: str) -> Counter[str]:
    """Rows by category, of the first two million rows; "" for those without one."""
    cells = islice((cell for file in look.files for cell in _cells(file, look.source, column)), MAX_COUNTED)
    return Counter(category_text(cell) or "" for cell in cells)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turns what goes wrong with a file into what a user can put right."""
    try:
        yield
    except (pa.ArrowException, OSError, RunError) as error:
        raise UsageError(f"cannot read {name}: {error}") from error


def _measure(file: FoundFile, source: Source) -> tuple[int, dict[str, pa.DataType], list[str]]:
    """A file's rows; where it says them, the types of its columns, and those that stand twice."""
    if file.format == "parquet":
        filesystem, path = open_filesystem(file.name, anonymous=source.anonymous)
        with filesystem.open(path, "rb") as opened:
            parquet = open_parquet(opened, file.name)
            counts = Counter(parquet.schema_arrow.names)
            types = {each.name: each.type for each in parquet.schema_arrow if counts[each.name] == 1}
            return parquet.metadata.num_rows, types, [name for name, count in counts.items() if count > 1]
    return sum(1 for _ in _lines(file.name, source)), {}, []


def _whole_rows(
    file: FoundFile, source: Source, num_rows: int, types: Mapping[str, pa.DataType]
) -> Iterator[dict[str, Any]]:
    """The file's rows that can be read, from its beginning on; of Parquet the columns that can be of use."""
    name = file.name
    if file.format == "parquet":
        # Others may be pictures.
        columns = [column for column, kind in types.items() if "nested" not in arrow_kinds(kind)]
        piece = Piece(0, 0, num_rows, num_rows)
        rows = read_piece(name, "parquet", piece, columns, anonymous=source.anonymous)
        yield from (row.values for row in rows if row.values is not None)
        return
    num_bytes = 0
    for line in _lines(name, source):
        num_bytes += len(line)
        if num_bytes > _MAX_BYTES:
            return
        if (row := parse_line(line).row) is not None:
            yield row


def _cells(file: FoundFile, source: Source, column: str) -> Iterator[Any]:
    with _readable(file.name):
        if file.format == "jsonl":
            yield from ((parse_line(line).row or {}).get(column) for line in _lines(file.name, source))
            return
        filesystem, path = open_filesystem(file.name, anonymous=source.anonymous)
        with filesystem.open(path, "rb", cache_type="none") as opened:
            for batch in open_rows(opened).iter_batches(columns=[column]):
                yield from read_cells(batch.column(0))


def _lines(name: str, source: Source) -> Iterator[bytes]:
    filesystem, path = open_filesystem(name, anonymous=source.anonymous)
    with filesystem.open(path, "rb") as file:
        yield from (line for line in file if line.strip())
