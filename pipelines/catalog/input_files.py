"""Input files: found, opened and measured before any work, so that a broken file costs nothing.

A row's permanent identity is (file, row number), counted from 0: by position in Parquet, by line in JSONL.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.catalog.file_kinds import STAGED_FORMATS
from pipelines.catalog.finding import FoundFile, find_files
from pipelines.catalog.listing import LeftOutFiles, listed_names
from pipelines.catalog.parquet_rows import (
    byte_columns,
    check_column_types,
    check_doubled,
    open_rows,
    read_parquet,
    stored_bytes,
)
from pipelines.catalog.paths import find_column, parquet_columns
from pipelines.catalog.row_checks import FirstLines, FirstRows, leads_nowhere, require_columns
from pipelines.catalog.rows import DeadRows
from pipelines.catalog.staged_rows import MORE, last_number, read_staged, row_numbers, staged_names
from pipelines.catalog.staging import rows_at, stage
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import RunError, UsageError
from pipelines.store.folders import map_requests, open_filesystem, size_and_etag

# Lines of a JSONL file that are parsed, and rows that are checked: of a file at most and at least, and of all about.
_PARSED_LINES = 1000
_MOST_CHECKED, _FEWEST_CHECKED, _ALL_CHECKED = 1000, 10, 10_000
_CHUNK_BYTES = 4 * 2**20
# Behind the footer of a Parquet file whose columns are encrypted.
_SIGNATURE_BYTES = 28


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A measured input file.

    Attributes:
        name: the path as the user wrote it; part of every row's identity.
        fingerprint: changes whenever the content does.
        row_counts, byte_counts: of rows that are best read together, in the file's order, the number and the
            uncompressed size of the mapped columns. Lists for the row groups of Parquet; arrays, because there are
            many, for lines, and for staged rows with gaps: one or no row for each row number.
        num_sampled: number of its first rows that were checked.
        dead_in_sample: checked rows that will be dead letters.
        sample_ids: product ids of the other checked rows.
        byte_columns: mapped Parquet columns whose bytes are read as text.
        staged: name under which its rows are staged, if it can only be read from the beginning.
        doubts: sentences on cells that may be read as nobody meant them.
        facts: what was found while it was staged.
    """

    name: str
    format: str
    size: int
    fingerprint: str
    row_counts: Sequence[int]
    byte_counts: Sequence[int]
    num_sampled: int = 0
    dead_in_sample: DeadRows = field(default_factory=DeadRows)
    sample_ids: Sequence[str] = ()
    byte_columns: Sequence[str] = ()
    staged: str | None = None
    doubts: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return sum(self.row_counts)

    @property
    def is_in_lines(self) -> bool:
        """Whether each segment is one row number, with a row or not: JSONL lines, staged rows with gaps."""
        return isinstance(self.row_counts, array)

    @property
    def stop(self) -> int:
        """Row number after the last."""
        return len(self.row_counts) if self.is_in_lines else self.num_rows

    @property
    def rows(self) -> tuple[str, str]:
        """Path and format from which its rows can be read on this machine."""
        return rows_at(self.name, self.format, self.staged)


@dataclass(frozen=True, slots=True)
class Sources:
    """A measured catalog, and the files left out. `num_sampled`: maximum number of checked rows of each file."""

    files: Sequence[SourceFile]
    left_out: LeftOutFiles
    num_sampled: int = _MOST_CHECKED

    def warnings(self) -> list[str]:
        """Return what a user should know about the files before any work, one line each."""
        return [*self.left_out.warnings(), *self._alike(), *self._without_rows(), *self._bytes(), *self._doubts()]

    def _alike(self) -> Iterator[str]:
        """Yield a warning for each set of identical files that are all read."""
        names = defaultdict(list)
        for file in self.files:
            if file.num_rows:
                names[file.size, file.fingerprint].append(file.name)
        for same in (each for each in names.values() if len(each) > 1):
            yield f"{len(same):,} files have the same content, and all are read: {listed_names(same)}"

    def _without_rows(self) -> Iterator[str]:
        names = [file.name for file in self.files if not any(file.row_counts)]
        if names:
            yield f"{len(names):,} file(s) hold no rows: {listed_names(names)}"

    def sample_warnings(self) -> Iterator[str]:
        """Yield a warning about dead letters among the first rows."""
        dead, num_rows = DeadRows(), sum(file.num_sampled for file in self.files)
        for file in self.files:
            dead.rows.update(file.dead_in_sample.rows)
            dead.examples = file.dead_in_sample.examples | dead.examples
        if dead.rows:
            reasons = "; ".join(f"{count:,} {code} ({dead.examples[code]})" for code, count in dead.rows.most_common())
            yield (
                f"of {num_rows:,} rows looked at, the first {self.num_sampled:,} of each file, {dead.rows.total():,} "
                f"will be dead letters: {reasons}"
            )

    def _bytes(self) -> Iterator[str]:
        for column in dict.fromkeys(column for file in self.files for column in file.byte_columns):
            names = [file.name for file in self.files if column in file.byte_columns]
            yield (
                f"column {column!r} holds bytes in {listed_names(names)}: they are read as UTF-8 text, and where they "
                "are none the row will be a dead letter"
            )

    def _doubts(self) -> Iterator[str]:
        return (doubt for file in self.files for doubt in file.doubts)


def scan_sources(config: InputConfig, outputs: Sequence[str] = ()) -> Sources:
    """Find and measure every input file. Raise `UsageError` naming the first file that cannot be used.

    Args:
        outputs: folders that the job writes.
    """
    found = find_files(config.path, config.format, anonymous=config.anonymous, outputs=outputs)
    num_sampled = min(_MOST_CHECKED, max(_FEWEST_CHECKED, _ALL_CHECKED // max(1, len(found.files))))
    files = map_requests(lambda file: scan_file(file, config, num_sampled), found.files)
    if not any(file.num_rows for file in files):
        raise UsageError(f"the catalog is empty: {len(files)} file(s) in {', '.join(config.path)}, no rows")
    return Sources(files, found.left_out, num_sampled)


def scan_file(file: FoundFile, config: InputConfig, num_sampled: int = _MOST_CHECKED) -> SourceFile:
    """Measure a file and check its first rows. Raise `UsageError` if it cannot be read or lacks a mapped column."""
    name = file.name
    filesystem, path = open_filesystem(name, anonymous=config.anonymous)
    try:
        if file.format in STAGED_FORMATS:
            return _scan_staged(file, config, num_sampled)
        if file.format == "parquet":
            return _scan_parquet(name, filesystem, path, config, num_sampled)
        return _scan_jsonl(name, filesystem, path, config, num_sampled)
    except pa.ArrowException as error:
        raise UsageError(f"{name} is not a readable Parquet file: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {name}") from error
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error}") from error


def _scan_parquet(name: str, filesystem: Any, path: str, config: InputConfig, num_sampled: int) -> SourceFile:
    size, etag = size_and_etag(filesystem, path)
    with filesystem.open(path, "rb") as file:
        parquet = open_parquet(file, name)
        metadata, schema = parquet.metadata, parquet.schema_arrow
        fingerprint = etag or footer_hash(file, size)
    require_columns(config, schema.names, name)
    check_column_types(config, schema, name)
    columns = parquet_columns(config.columns, schema)
    first = FirstRows(name, config)
    # Just what is asked for: a read-ahead cache would fetch whole row groups.
    with filesystem.open(path, "rb", cache_type="none") as file:
        for row in read_parquet(file, 0, num_sampled, config.columns, whole_groups=False):
            first.add(row)
    rows = (*_segments(metadata, columns), first.num_rows, first.dead, first.ids)
    return SourceFile(name, "parquet", size, fingerprint, *rows, byte_columns(config, schema))


def _segments(metadata: pq.FileMetaData, columns: Sequence[str]) -> tuple[list[int], list[int]]:
    groups = list(map(metadata.row_group, range(metadata.num_row_groups)))
    sizes = [stored_bytes(each, columns, "total_uncompressed_size") for each in groups]
    return [each.num_rows for each in groups], sizes


def _scan_staged(file: FoundFile, config: InputConfig, num_sampled: int) -> SourceFile:
    staged = stage(file.name, file.format, config)
    first = FirstRows(file.name, config)
    with open(staged.path, "rb") as opened:
        parquet = open_rows(opened, whole_groups=False)
        names = [*staged_names(parquet), *staged.facts["more"]]
        if names:
            missing = [path for path in config.columns if leads_nowhere(path, names, staged.facts)]
            require_columns(config, list(dict.fromkeys(names)), file.name, missing)
        check_doubled(config, staged_names(parquet), file.name)
        found = (find_column(path, names) for path in config.columns)
        segments = _staged_segments(parquet, [each[0] for each in found if each is not None])
        for row in itertools.islice(read_staged(opened, 0, sys.maxsize, config.columns), num_sampled):
            first.add(row)
    return SourceFile(
        file.name,
        staged.format,
        staged.size,
        staged.fingerprint,
        *segments,
        first.num_rows,
        first.dead,
        first.ids,
        staged=staged.name,
        doubts=list(staged.doubts(file.name, config.columns or None)),
        facts=staged.facts,
    )


def _staged_segments(parquet: pq.ParquetFile, columns: Sequence[str]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the row groups; single row numbers where a catalog row is made of several rows of the file."""
    row_counts, byte_counts = _segments(parquet.metadata, [*columns, MORE])
    if last_number(parquet) == parquet.metadata.num_rows - 1:
        return row_counts, byte_counts
    numbers = row_numbers(parquet)
    counts = np.zeros(int(numbers[-1]) + 1, np.uint8)
    counts[numbers] = 1
    sizes = counts * np.uint64(sum(byte_counts) // len(numbers))
    return array("B", counts.tobytes()), array("Q", sizes.tobytes())


def open_parquet(file: Any, name: str) -> pq.ParquetFile:
    """Open a Parquet file. Raise `UsageError` if it is truncated or has encrypted columns, and Arrow's errors."""
    try:
        parquet = pq.ParquetFile(file)
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
    except pa.ArrowInvalid as error:
        file.seek(-4, os.SEEK_END)
        if file.read() == b"PAR1":
            raise
        raise UsageError(
            f"{name} is cut off: it begins as Parquet and does not end so. Was it copied or written to its end?"
        ) from error
    if length - parquet.metadata.serialized_size == _SIGNATURE_BYTES:
        # Nothing else tells in time: Arrow ends the process when it is asked about such a column.
        raise UsageError(f"{name} has encrypted columns: decrypt it, keys cannot be given here")
    return parquet


def _scan_jsonl(name: str, filesystem: Any, path: str, config: InputConfig, num_sampled: int) -> SourceFile:
    size, etag = size_and_etag(filesystem, path)
    content = hashlib.sha256()
    counts, lengths = array("B"), array("Q")
    first = FirstLines(name, config, num_sampled)
    with filesystem.open(path, "rb", block_size=_CHUNK_BYTES) as file:
        for number, line in enumerate(file):
            content.update(line)
            lengths.append(len(line))
            counts.append(bool(line.strip()))
            if not counts[-1]:
                continue
            if number < _PARSED_LINES:
                first.add(number, line)
            elif first.missing:
                first.look_for_missing(line)
    first.check()
    fingerprint = etag or content.hexdigest()[:32]
    sampled = (first.checked.num_rows, first.checked.dead, first.checked.ids)
    return SourceFile(name, "jsonl", size, fingerprint, counts, lengths, *sampled)


def footer_hash(file: Any, size: int) -> str:
    """Return a hash of a Parquet file's footer, which describes the layout of its content."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - length - 8))
    return hashlib.sha256(file.read()).hexdigest()[:32]


def check_unchanged(uri: str, file_format: str, size: int, fingerprint: str, *, anonymous: bool = False) -> None:
    """Raise `RunError` if the file's size or fingerprint differs from when it was measured.

    The fingerprint of lines on a local disk covers all their bytes, so only the size is compared there.
    """
    filesystem, path = open_filesystem(uri, anonymous=anonymous)
    try:
        now, mark = size_and_etag(filesystem, path)
        if mark is None and file_format == "parquet" and now == size:
            with filesystem.open(path, "rb", cache_type="none") as file:
                mark = footer_hash(file, size)
    except OSError as error:
        raise RunError(f"cannot read {uri}: {error}") from error
    if now != size or (mark is not None and mark != fingerprint):
        raise changed(uri)


def changed(uri: str, what: str = "it is another file than the run was planned by") -> RunError:
    """Return the error for a file that was changed during the run."""
    return RunError(
        f"{uri} has changed during the run: {what}. Put it back as it was, or extract the new one into another output "
        "folder"
    )
