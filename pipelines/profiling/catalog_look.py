"""Profile of a catalog's content from some whole rows, and the category of the others."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.catalog.file_kinds import STAGED_FORMATS
from pipelines.catalog.finding import FoundFile, find_files
from pipelines.catalog.input_files import open_parquet
from pipelines.catalog.listing import LeftOutFiles
from pipelines.catalog.paths import find_column, value_at
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.catalog.staged_rows import read_staged, staged_names
from pipelines.catalog.staging import StagedFile, stage
from pipelines.catalog.text_files import NotUtf8Error, parse_line
from pipelines.catalog.workbooks import SheetsError
from pipelines.config.catalog_input import InputFormat, ReadOptions, encoding_name
from pipelines.errors import RunError, UsageError
from pipelines.profiling.columns import ProfiledColumn, arrow_kinds, look_at, nested_paths
from pipelines.store.folders import open_filesystem

_MAX_ROWS = 10_000  # looked at whole
_MAX_FILES = 50  # from which they are taken
_MAX_BYTES = 64 * 2**20  # of one JSONL file
_ROUNDED = re.compile(r"\d[.,]\d+E\+\d\d")
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)*")


@dataclass(frozen=True, slots=True)
class LookedSource:
    """Source to profile: a file, folder or glob, and how it is read. Raises `UsageError` for an unknown encoding."""

    path: str
    format: InputFormat = "auto"
    anonymous: bool = False
    encoding: str | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        try:
            _ = self.encoding and encoding_name(self.encoding)
        except ValueError as error:
            raise UsageError(f"--encoding: {error}") from None

    @property
    def reading(self) -> ReadOptions:
        """Options for the catalog's readers."""
        return ReadOptions(self.format, encoding=self.encoding, sheet=self.sheet, anonymous=self.anonymous)


@dataclass(frozen=True, slots=True)
class Look:
    """Profile of a catalog.

    Attributes:
        source: source with the detected encoding and sheet.
        staged: staged files: those that can only be read sequentially.
        notes: what was guessed, and why; cells that may be read as nobody meant them.
        num_rows: number of rows of all files.
        sample: rows that were read whole.
        doubled: column that stands twice in a file, and is therefore ambiguous -> that file.
    """

    source: LookedSource
    files: Sequence[FoundFile]
    left_out: LeftOutFiles
    num_rows: int
    columns: Sequence[ProfiledColumn]
    sample: Sequence[dict[str, Any]]
    doubled: Mapping[str, str]
    staged: Sequence[StagedFile] = ()
    notes: Sequence[str] = ()


def look_into(source: LookedSource) -> Look:
    """Profile the files at `source`. Raises `UsageError` for files that cannot be read."""
    found = find_files([source.path], source.format, anonymous=source.anonymous)
    files = found.files
    source, kept, guessed = _staged(files, source)
    share = -(-_MAX_ROWS // min(len(files), _MAX_FILES))
    types: dict[str, pa.DataType] = {}
    names_in_file: list[set[str]] = []
    sample: list[dict[str, Any]] = []
    doubled: dict[str, str] = {}
    num_rows = 0
    for number, file in enumerate(files):
        with _readable(file.name):
            file_rows, file_types, file_doubled = _measure(file, kept.get(file.name), source)
            doubled |= dict.fromkeys(file_doubled, file.name)
            num_rows += file_rows
            for column, kind in file_types.items():
                if column not in types or pa.types.is_null(types[column]):
                    types[column] = kind
            if number < _MAX_FILES:
                rows = (
                    list(islice(_whole_rows(file, kept.get(file.name), source, file_rows, file_types), share))
                    if file_rows
                    else []
                )
                sample += rows
                more = kept[file.name].facts["more"] if file.name in kept else ()
                names_in_file.append({*file_types, *more} or {column for row in rows for column in row})
    if num_rows and not sample:
        raise UsageError(f"{files[0].name}: none of its first rows can be read{_problem(files[0], kept, source)}")
    guessed += _doubts(sample, num_rows, kept)
    notes = [f"a guess of {each}" for each in guessed]
    notes += [doubt for name, staged in kept.items() for doubt in staged.doubts(name)]
    paths = nested_paths(sample)
    nested = [{path: value_at(row, path) for path in paths} for row in sample]
    columns = [*look_at(sample, types), *look_at(nested, {})]
    for each in columns:
        each.is_everywhere = all(find_column(each.name, names) for names in names_in_file if names)
    return Look(source, files, found.left_out, num_rows, columns, sample, doubled, list(kept.values()), notes)


def found_forms(look: Look) -> dict[str, list[str]]:
    """Return form (dialect and encoding) -> names of the delimited files that have it."""
    names = (file.name for file in look.files if file.format in STAGED_FORMATS)
    forms: dict[str, list[str]] = {}
    for name, file in zip(names, look.staged, strict=True):
        if "dialect" in file.facts:
            forms.setdefault(f"{file.facts['dialect']}, {file.facts['encoding']}", []).append(name)
    return forms


def _problem(file: FoundFile, kept: Mapping[str, StagedFile], source: LookedSource) -> str:
    """Return why the first row of a file cannot be read; "" if unknown."""
    if file.name in kept:
        with open(kept[file.name].path, "rb") as opened:
            problems = (
                problem for _, _, problem, _ in read_staged(opened, 0, sys.maxsize, None) if problem is not None
            )
            return next((f": {problem.message}" for problem in problems), "")
    if file.format == "jsonl":
        return next((f": {problem}" for line in _lines(file.name, source) if (problem := parse_line(line).problem)), "")
    return ""


def _doubts(sample: Sequence[Mapping[str, Any]], num_rows: int, kept: Mapping[str, StagedFile]) -> Iterator[str]:
    """Yield doubts on whether rows are products, and names are column names."""
    for name, staged in kept.items():
        if above := staged.facts.get("above"):
            yield f"the columns' names: they stand below {', '.join(map(repr, above))} in {name}"
        with pq.ParquetFile(staged.path) as parquet:
            numbers = [each for each in staged_names(parquet) if _NUMBER.fullmatch(each)]
        if numbers and staged.format != "xml":
            yield (
                f"the columns' names: {numbers[0]!r} is one in {name}. If its first row is a product, write the names "
                "in a row above it"
            )
    for column in sample[0] if sample else ():
        texts = [text for row in sample if isinstance(text := row.get(column), str) and text.strip()]
        if texts and all(map(_ROUNDED.fullmatch, texts)):
            yield (
                f"the column {column!r}: {texts[0]!r} is a long number that a spreadsheet has rounded. Was it an id? "
                "Then write the file again with that column as text"
            )
    for column, cell in sample[0].items() if num_rows == 1 and sample else ():
        if isinstance(cell, list) and len(cell) > 1 and all(isinstance(item, Mapping) for item in cell):
            yield (
                f"the products: there is one row, whose {column!r} is a list of {len(cell):,} objects. If these are "
                f"the products, write them a line each: jq -c '.[\"{column}\"][]'"
            )


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Convert errors of reading a file into `UsageError`."""
    try:
        yield
    except (pa.ArrowException, OSError, RunError) as error:
        raise UsageError(f"cannot read {name}: {error}") from error


def _staged(files: Sequence[FoundFile], source: LookedSource) -> tuple[LookedSource, dict[str, StagedFile], list[str]]:
    """Stage the files that can only be read sequentially.

    Return the source with the encoding and sheet that they need, the staged files by name, and the guesses made.
    """
    kept: dict[str, StagedFile] = {}
    guessed: list[str] = []
    for file in files:
        while file.format in STAGED_FORMATS and file.name not in kept:
            try:
                kept[file.name] = stage(file.name, file.format, source.reading)
            except NotUtf8Error:
                source = replace(source, encoding="cp1252")
                guessed.append(
                    f"encoding: {file.name} is not UTF-8, and cp1252 (Windows) is the most frequent other one. Look at "
                    "its letters; files that begin in UTF-8 are read as such, whatever stands here"
                )
            except SheetsError as error:
                source = replace(source, sheet=error.sheets[0])
                guessed.append(f"sheet: there are {', '.join(map(repr, error.sheets))}")
    return source, kept, guessed


def _measure(
    file: FoundFile, staged: StagedFile | None, source: LookedSource
) -> tuple[int, dict[str, pa.DataType], list[str]]:
    """Return a file's number of rows and, if it states them, the types of its columns and its duplicate columns."""
    if staged is not None:
        with pq.ParquetFile(staged.path) as kept:
            names = Counter(staged_names(kept))
            plain = {
                name: pa.string() for name, count in names.items() if count == 1 and name not in staged.facts["more"]
            }
            return kept.metadata.num_rows, plain, [name for name, count in names.items() if count > 1]
    if file.format == "parquet":
        filesystem, path = open_filesystem(file.name, anonymous=source.anonymous)
        with filesystem.open(path, "rb") as opened:
            parquet = open_parquet(opened, file.name)
            counts = Counter(parquet.schema_arrow.names)
            types = {each.name: each.type for each in parquet.schema_arrow if counts[each.name] == 1}
            return parquet.metadata.num_rows, types, [name for name, count in counts.items() if count > 1]
    return sum(1 for _ in _lines(file.name, source)), {}, []


def _whole_rows(
    file: FoundFile, staged: StagedFile | None, source: LookedSource, num_rows: int, types: Mapping[str, pa.DataType]
) -> Iterator[dict[str, Any]]:
    """Yield the file's readable rows from its beginning; in Parquet without nested columns that hold bytes."""
    name = file.name
    if staged is not None:
        with open(staged.path, "rb") as opened:
            yield from (values for _, values, _, _ in read_staged(opened, 0, sys.maxsize, None) if values is not None)
        return
    if file.format == "parquet":
        # Bytes may be pictures.
        columns = [column for column, kind in types.items() if "nested" not in arrow_kinds(kind) or _has_no_bytes(kind)]
        piece = RowRange(0, 0, num_rows, num_rows)
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


def _has_no_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return all(_has_no_bytes(kind.field(index).type) for index in range(kind.num_fields))
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _lines(name: str, source: LookedSource) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    filesystem, path = open_filesystem(name, anonymous=source.anonymous)
    with filesystem.open(path, "rb") as file:
        yield from (line for line in file if line.strip())
