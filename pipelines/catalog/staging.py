"""Staging of files that can only be read from the beginning (CSV, feeds, workbooks, packed lines): read once, kept as
Parquet.

Later steps read pieces of the staged rows, and only the mapped columns. They are cached for the user under a name that
hashes the file's content and how it was read. So a file is read again only if it has changed. A half-written one has
another name. A run copies its staged files into its folder first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow.parquet as pq

from hpd_core.system.storage import cache_folder
from hpd_core.types import content_hash
from pipelines.catalog.csv_files import CsvFile
from pipelines.catalog.feeds import FeedFile
from pipelines.catalog.file_kinds import FileFormat
from pipelines.catalog.staged_rows import RowWriter, staged_facts
from pipelines.catalog.text_files import open_unpacked, parse_line
from pipelines.catalog.workbooks import Workbook
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.store.folders import Folder, open_filesystem, size_and_etag
from pipelines.store.ledger import INPUT_FOLDER

STAGED = "staged"
"""Format name of staged files for the readers."""

_VERSION = 9
_CHUNK = 2**22
_KEPT_SECONDS = 14 * 24 * 3600
_HALF_WRITTEN_SECONDS = 24 * 3600


class StagedSource(Protocol):
    """A file whose beginning was inspected. `how`: all that decides which rows come out, apart from the file itself."""

    how: dict[str, Any]

    def write(self, target: Path) -> None:
        """Write all rows into a Parquet file of `staged_rows`."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Staged rows of a file.

    Attributes:
        name: name of the Parquet file, without folders.
        format: csv, shopify, xml, excel or packed jsonl.
        size, fingerprint: size and fingerprint of the original file.
        facts: facts found while reading it.
    """

    name: str
    format: str
    size: int
    fingerprint: str
    facts: dict[str, Any]

    @property
    def path(self) -> str:
        """Path on this machine."""
        return staged_path(self.name)

    def doubts(self, name: str, columns: Collection[str] | None = None) -> Iterator[str]:
        """Yield what a user should know of cells that may be read as nobody meant them.

        Args:
            name: the original file, as the user wrote it.
            columns: columns that matter; None for all.
        """
        if short := self.facts.get("short"):
            yield f"{short:,} row(s) of {name} have fewer cells than columns: the last ones are empty"
        if unstored := self.facts.get("unstored"):
            yield (
                f"{unstored:,} cell(s) of {name} have a formula without a stored result, or an error, and read as "
                "empty or 0: open it in a spreadsheet program, mend and save it"
            )
        for column, count in self.facts.get("dated", {}).items():
            if columns is None or column in columns:
                yield (
                    f"{count:,} cell(s) of the column {column!r} in {name} are dates, others are texts: spreadsheets "
                    "make a date of 10-12; write such cells as text"
                )


def staged_path(name: str) -> str:
    """Return the path of a staged file on this machine."""
    return str(_folder() / name)


def _folder() -> Path:
    return cache_folder() / "rows"


def staged_format(file_format: str) -> FileFormat:
    """Return the kind under which a staged file's original is read again."""
    return cast(FileFormat, "csv" if file_format == "shopify" else file_format)


def rows_at(name: str, file_format: str, staged: str | None) -> tuple[str, str]:
    """Return the path and format from which a file's rows can be read on this machine."""
    return (name, file_format) if staged is None else (staged_path(staged), STAGED)


def stage(name: str, file_format: FileFormat, config: InputConfig) -> StagedFile:
    """Stage the file's rows, unless they are cached. Raise `UsageError` if it cannot be read."""
    filesystem, path = open_filesystem(name, anonymous=config.anonymous)
    before = _stamp(filesystem, path)
    size, fingerprint = measure(filesystem, path)
    source = _look_into(name, filesystem, path, file_format, config)
    how = {"version": _VERSION, "content": [fingerprint, size], "read": source.how}
    target = _folder() / f"{content_hash(how)}.parquet"
    if not target.exists():
        _make_room(target.parent)
        with _half_written(target) as scratch:
            source.write(scratch)
            if _stamp(filesystem, path) != before:
                # Else its rows would be kept under the name of other content.
                raise UsageError(f"{name} has changed while it was read; start again when it is written to its end")
    with suppress(OSError):
        os.utime(target)
    with pq.ParquetFile(target) as parquet:
        facts = staged_facts(parquet)
    return StagedFile(target.name, str(facts["format"]), size, fingerprint, facts)


def _look_into(name: str, filesystem: Any, path: str, file_format: FileFormat, config: InputConfig) -> StagedSource:
    if file_format == "packed jsonl":
        return PackedLines(name, filesystem, path)
    if file_format == "xml":
        return FeedFile(name, filesystem, path)
    if file_format == "excel":
        return Workbook(name, filesystem, path, config.sheet)
    return CsvFile(name, filesystem, path, config)


def _make_room(folder: Path) -> None:
    """Create the folder; remove files that have not been used for long, and leftovers of killed processes."""
    now = time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            kept = _HALF_WRITTEN_SECONDS if path.name.endswith(".tmp") else _KEPT_SECONDS
            with suppress(OSError):
                if now - path.stat().st_mtime > kept:
                    path.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from error


def measure(filesystem: Any, path: str) -> tuple[int, str]:
    """Return a file's size, and a fingerprint that changes whenever its content does."""
    size, etag = size_and_etag(filesystem, path)
    return size, etag or hash_content(filesystem, path)


def _stamp(filesystem: Any, path: str) -> list[Any]:
    """Return file metadata, read without the content, that changes when the file is written."""
    info = filesystem.info(path)
    return [info.get(name) for name in ("size", "ETag", "etag", "mtime", "LastModified")]


def hash_content(filesystem: Any, path: str) -> str:
    """Return a hash of a file's bytes, which is its fingerprint on a local disk."""
    with filesystem.open(path, "rb", block_size=_CHUNK) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


@contextmanager
def _half_written(target: Path) -> Iterator[Path]:
    """Yield a scratch path that becomes `target` on success. Raise `UsageError` if the disk is full or read-only."""
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield scratch
        with open(scratch, "rb") as file:
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise _unwritable(target.parent, error) from error
        raise
    finally:
        scratch.unlink(missing_ok=True)


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"the rows of CSV, XML, Excel and packed files are kept in {folder} (HPD_CACHE names another): {error}"
    )


def store_rows(output: Folder, names: Iterable[str]) -> None:
    """Copy staged files into a run's folder, where all of its processes can read them. Each copy is atomic."""
    for name in names:
        stored = f"{INPUT_FOLDER}/{name}"
        if not output.exists(stored):
            output.put(staged_path(name), stored)


def fetch_rows(output: Folder, name: str) -> bool:
    """Restore a staged file on this machine from a run's folder, if needed. Return whether it is there."""
    target = Path(staged_path(name))
    if target.exists():
        return True
    if not output.exists(f"{INPUT_FOLDER}/{name}"):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with _half_written(target) as scratch, output.open(f"{INPUT_FOLDER}/{name}") as source, scratch.open("wb") as copy:
        shutil.copyfileobj(source, copy, _CHUNK)
    return True


_LOOKED_AT = 1000
"""Number of first lines, at least one of which must be an object."""


class PackedLines:
    """A compressed JSON Lines file that can be read."""

    def __init__(self, name: str, filesystem: Any, path: str) -> None:
        self._name, self._filesystem, self._path = name, filesystem, path
        self.how = {"format": "packed jsonl"}

    def write(self, target: Path) -> None:
        """Write all rows to `target`. Raise `UsageError` if it is damaged, or none of its first lines is an object."""
        writer, first_problem = RowWriter(target, ()), ""
        with open_unpacked(self._filesystem, self._path, self._name) as file:
            for number, line in enumerate(file):
                if not line.strip():
                    continue
                parsed = parse_line(line)
                if parsed.row is not None:
                    writer.add_line(number, line.decode().removesuffix("\n"), parsed.row)
                else:
                    problem = parsed.problem or ""
                    first_problem = first_problem or f"line {number + 1}: {problem}"
                    writer.refuse(
                        number, "broken_line", problem, line.decode(errors="backslashreplace").removesuffix("\n")
                    )
                if writer.num_rows == _LOOKED_AT:
                    self._check(writer, first_problem)
        self._check(writer, first_problem)
        writer.close(self.how)

    def _check(self, writer: RowWriter, problem: str) -> None:
        if writer.num_rows and writer.num_rows == writer.num_refused:
            raise UsageError(
                f"{self._name} is not JSON Lines: of {writer.num_rows:,} lines looked at none is a JSON object; "
                f"{problem}"
            )
