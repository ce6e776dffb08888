"""The input files: found, opened and measured before any work, so that a broken file costs nothing.

A row is known by (file, row number) for ever: counted from 0, in Parquet by position, in JSONL by line.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from pipelines.catalog.rows import check_column_types, parse_line
from pipelines.config.extraction import InputConfig
from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

FileFormat = Literal["parquet", "jsonl"]

_ENDINGS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_SAMPLED_LINES = 1000
_SCAN_THREADS = 16
_CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of rows that are best read together: a Parquet row group, or one JSONL line.

    Attributes:
        num_rows: rows in it; 0 for a blank JSONL line, which keeps its number but is no row.
        num_bytes: size of the mapped columns, uncompressed.
    """

    num_rows: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A measured input file.

    Attributes:
        name: the path as the user wrote it; part of every row's identity.
        fingerprint: changes whenever the content does.
        segments: in the file's order.
    """

    name: str
    format: FileFormat
    size: int
    fingerprint: str
    segments: Sequence[Segment]

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return sum(segment.num_rows for segment in self.segments)


class LineSegments(Sequence[Segment]):
    """The lines of a JSONL file as segments, 8 bytes a line: a catalog can have very many."""

    def __init__(self, lengths: array[int], blank: set[int]) -> None:
        self._lengths = lengths
        self._blank = blank

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return Segment(num_rows=int(index not in self._blank), num_bytes=self._lengths[index])


def scan_sources(config: InputConfig) -> list[SourceFile]:
    """Finds and measures every input file. Raises `UsageError` naming the first file that cannot be used."""
    names = [name for path in config.path for name in list_files(path, config.format, anonymous=config.anonymous)]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise UsageError(f"input file {doubled[0]} is named twice in input.path")
    with ThreadPoolExecutor(_SCAN_THREADS) as pool:
        files = list(pool.map(lambda name: scan_file(name, config), names))
    if not any(file.num_rows for file in files):
        raise UsageError(f"the catalog is empty: {len(files)} file(s) in {', '.join(config.path)}, no rows")
    return files


def list_files(path: str, file_format: str, *, anonymous: bool = False) -> list[str]:
    """The data files at `path`, sorted: a file, the files in a folder (recursively), or what a glob matches."""
    filesystem, root = open_filesystem(path, anonymous=anonymous)
    prefix = path.rstrip("/") or "/"
    try:
        if any(character in path for character in "*?["):
            names = [_as_written(match, path, root) for match in _glob(filesystem, root)]
        elif filesystem.info(root)["type"] == "file":
            return [path]
        else:
            found = [str(match) for match in filesystem.find(root, **_walk_options(filesystem))]
            found = [match for match in found if not _is_hidden(match[len(root) :])]
            names = [prefix + match[len(root) :] for match in found]
    except FileNotFoundError as error:
        raise UsageError(f"input.path: no such file or folder: {path}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"input.path: cannot list {path}: {error}") from error
    # On S3, an empty object whose name ends in a slash stands for a folder.
    names = [name for name in names if not name.endswith("/")]
    data_files = [name for name in sorted(names) if file_format != "auto" or _ending_format(name) is not None]
    if not data_files:
        raise UsageError(f"input.path: no Parquet or JSONL files in {path}")
    return data_files


def _walk_options(filesystem: Any) -> dict[str, str]:
    # By default a local folder that cannot be listed is passed over; others do not know the option.
    return {"on_error": "raise"} if isinstance(filesystem, LocalFileSystem) else {}


def _glob(filesystem: Any, pattern: str) -> list[str]:
    if "s3" not in filesystem.protocol:
        found = filesystem.glob(pattern, **_walk_options(filesystem))
        return [str(match) for match in found if filesystem.isfile(match)]
    # s3fs's glob passes over folders that cannot be listed, and files that cannot be asked for: rows would be missing
    # without a word. A flat listing of everything that begins like the pattern raises.
    start, _, stem = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")
    matches = re.compile(glob_translate(pattern)).match
    return [str(path) for path in filesystem.find(start, prefix=stem) if matches(str(path))]


def scan_file(name: str, config: InputConfig) -> SourceFile:
    """Measures one file. Raises `UsageError` if it cannot be read or lacks a mapped column."""
    file_format = file_format_of(name, config.format)
    filesystem, path = open_filesystem(name, anonymous=config.anonymous)
    try:
        if file_format == "parquet":
            return _scan_parquet(name, filesystem, path, config)
        return _scan_jsonl(name, filesystem, path, config)
    except pa.ArrowException as error:
        raise UsageError(f"{name} is not a readable Parquet file: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {name}") from error
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error}") from error


def file_format_of(name: str, configured: Literal["auto"] | FileFormat) -> FileFormat:
    """The format of a file: as configured, or by its ending. Raises `UsageError` for an unknown one."""
    file_format = _ending_format(name) if configured == "auto" else configured
    if file_format is None:
        raise UsageError(f"{name}: neither .parquet nor .jsonl; set input.format")
    return file_format


def _scan_parquet(name: str, filesystem: Any, path: str, config: InputConfig) -> SourceFile:
    size, etag = _size_and_etag(filesystem, path)
    with filesystem.open(path, "rb") as file:
        parquet = pq.ParquetFile(file)
        metadata, schema = parquet.metadata, parquet.schema_arrow
        footer = hashlib.sha256()
        file.seek(max(0, size - metadata.serialized_size - 8))
        footer.update(file.read())
    require_columns(config, schema.names, name)
    check_column_types(config, schema, name)
    segments = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        chunks = [group.column(position) for position in range(group.num_columns)]
        mapped = [chunk for chunk in chunks if _belongs_to(chunk.path_in_schema, config.columns)]
        segments.append(Segment(group.num_rows, sum(chunk.total_uncompressed_size for chunk in mapped)))
    return SourceFile(name, "parquet", size, etag or footer.hexdigest()[:32], segments)


def _scan_jsonl(name: str, filesystem: Any, path: str, config: InputConfig) -> SourceFile:
    size, etag = _size_and_etag(filesystem, path)
    content = hashlib.sha256()
    lengths: array[int] = array("Q")
    blank: set[int] = set()
    keys: dict[str, None] = {}
    with filesystem.open(path, "rb", block_size=_CHUNK_BYTES) as file:
        for number, line in enumerate(file):
            content.update(line)
            lengths.append(len(line))
            if not line.strip():
                blank.add(number)
            elif number < _SAMPLED_LINES:
                row = parse_line(line).row
                keys.update(dict.fromkeys(row or {}))
    if keys:
        scanned = f"{name} (its first {min(_SAMPLED_LINES, len(lengths)):,} lines)"
        require_columns(config, list(keys), scanned)
    elif len(lengths) > len(blank):
        raise UsageError(f"{name} is not JSONL: none of its first lines is a JSON object")
    return SourceFile(name, "jsonl", size, etag or content.hexdigest()[:32], LineSegments(lengths, blank))


def require_columns(config: InputConfig, existing: Sequence[str], name: str) -> None:
    """Raises `UsageError`, naming the columns that exist, if a mapped one does not."""
    settings = {config.category: "input.category", **dict.fromkeys(config.fields.values(), "input.fields")}
    if config.id is not None:
        settings[config.id] = "input.id"
    for column in config.columns:
        if column not in existing:
            raise UsageError(
                f"column {column!r} ({settings[column]}) is not in {name}; its columns: {', '.join(existing) or 'none'}"
            )


def _belongs_to(leaf_path: str, columns: Sequence[str]) -> bool:
    # A list column `a` is stored as the leaf `a.list.element`.
    return any(leaf_path == column or leaf_path.startswith(f"{column}.") for column in columns)


def _size_and_etag(filesystem: Any, path: str) -> tuple[int, str | None]:
    info = filesystem.info(path)
    etag = info.get("ETag") or info.get("etag")
    return int(info["size"]), str(etag).strip('"') if etag else None


def _ending_format(name: str) -> FileFormat | None:
    leaf = name.rsplit("/", 1)[-1].lower()
    if leaf.endswith((".jsonl.gz", ".json.gz", ".ndjson.gz", ".jsonl.zst", ".jsonl.bz2")):
        raise UsageError(f"{name}: compressed JSONL cannot be cut into shards; decompress it or store it as Parquet")
    return next((file_format for ending, file_format in _ENDINGS.items() if leaf.endswith(ending)), None)


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative.split("/") if part)


def _as_written(match: str, pattern: str, root: str) -> str:
    # A glob is matched in its absolute form; give matches back in the form of the pattern.
    absolute_start = root[: len(root) - len(pattern)] if root.endswith(pattern) else None
    if absolute_start is not None:
        return match[len(absolute_start) :]
    protocol = pattern.split("://", 1)[0] + "://" if "://" in pattern else ""
    return protocol + match
