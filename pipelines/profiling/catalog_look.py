"""Profile of a catalog's content from some whole rows, and the category of the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from pipelines.catalog.finding import FoundFile, find_files
from pipelines.catalog.input_files import SourceFile, scan_file
from pipelines.catalog.listing import LeftOutFiles
from pipelines.catalog.paths import find_column, value_at
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import plan_shards
from pipelines.catalog.staged_rows import HIDDEN
from pipelines.catalog.text_files import NotUtf8Error
from pipelines.catalog.workbooks import SheetsError
from pipelines.config.catalog_input import InputConfig, InputFormat
from pipelines.config.loading import Mapped
from pipelines.config.operation import ShardConfig
from pipelines.config.yaml_files import shown
from pipelines.errors import RunError, UsageError
from pipelines.profiling.columns import ProfiledColumn, arrow_kinds, look_at, nested_paths
from pipelines.store.folders import open_filesystem

_MAX_ROWS = 10_000  # looked at whole
_MAX_FILES = 50  # from which they are taken
_ROUNDED = re.compile(r"\d[.,]\d+E\+\d\d")
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)*")


def source_of(
    path: str,
    file_format: InputFormat = "auto",
    anonymous: bool = False,
    encoding: str | None = None,
    sheet: str | None = None,
) -> InputConfig:
    """Return the settings to read a catalog of which no column is known. Raises `UsageError`."""
    nothing = Mapped(text="-")
    read = {"format": file_format, "anonymous": anonymous, "encoding": encoding, "sheet": sheet}
    try:
        return InputConfig.model_validate({"path": path, "category": nothing, "fields": {"-": nothing}, **read})
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(f"--{problem['loc'][0]}: {problem['msg'].removeprefix('Value error, ')}") from None


@dataclass(frozen=True, slots=True)
class Look:
    """Profile of a catalog.

    Attributes:
        source: source with the detected encoding and sheet.
        notes: what was guessed, and why; cells that may be read as nobody meant them.
        num_rows: number of rows of all files.
        sample: rows that were read whole.
        doubled: column that stands twice in a file, and is therefore ambiguous -> that file.
    """

    source: InputConfig
    files: Sequence[SourceFile]
    left_out: LeftOutFiles
    num_rows: int
    columns: Sequence[ProfiledColumn]
    sample: Sequence[dict[str, Any]]
    doubled: Mapping[str, str]
    notes: Sequence[str] = ()

    def told(self) -> Iterator[str]:
        """Yield what a user should know of files and columns: those that are not read, and those that were guessed."""
        yield from (*self.left_out.warnings(), *self.notes)
        for column, file in self.doubled.items():
            yield f"column {shown(column)} stands twice in {file}: rename one of the two to have it read"


def look_into(source: InputConfig) -> Look:
    """Profile the files at `source`. Raises `UsageError` for files that cannot be read."""
    found = find_files(source.path, source.format, anonymous=source.anonymous)
    source, files, guessed = _measured(found.files, source)
    share = -(-_MAX_ROWS // min(len(files), _MAX_FILES))
    types: dict[str, pa.DataType] = {}
    names_in_file: list[set[str]] = []
    sample: list[dict[str, Any]] = []
    doubled: dict[str, str] = {}
    for number, file in enumerate(files):
        stated = _stated(file, source)
        counts = Counter(each.name for each in stated)
        doubled |= {name: file.name for name, count in counts.items() if count > 1}
        more = file.facts.get("more", ())
        file_types = {each.name: each.type for each in stated if counts[each.name] == 1 and each.name not in more}
        for column, kind in file_types.items():
            if column not in types or pa.types.is_null(types[column]):
                types[column] = kind
        if number < _MAX_FILES:
            # Bytes may be pictures.
            read = [
                name for name, kind in file_types.items() if "nested" not in arrow_kinds(kind) or _has_no_bytes(kind)
            ]
            rows = list(first_rows(file, read if file.format == "parquet" else None, source, share))
            sample += rows
            names_in_file.append({*file_types, *more} or {column for row in rows for column in row})
    num_rows = sum(file.num_rows for file in files)
    if num_rows and not sample:
        problem = next(iter(files[0].dead_in_sample.examples.values()), files[0].name)
        raise UsageError(f"none of the first rows can be read: {problem}")
    notes = [f"a guess of {each}" for each in (*guessed, *_doubts(sample, num_rows, files, types))]
    notes += [doubt for file in files for doubt in file.doubts]
    paths = nested_paths(sample)
    nested = [{path: value_at(row, path) for path in paths} for row in sample]
    columns = [*look_at(sample, types), *look_at(nested, {})]
    for each in columns:
        each.is_everywhere = all(find_column(each.name, names) for names in names_in_file if names)
    return Look(source, files, found.left_out, num_rows, columns, sample, doubled, notes)


def first_rows(
    file: SourceFile, columns: Sequence[str] | None, source: InputConfig, count: int
) -> Iterator[dict[str, Any]]:
    """Yield the readable ones of a file's first rows. Raises `UsageError`."""
    try:
        for piece in (piece for shard in plan_shards([file], ShardConfig(), 0, 1, count) for piece in shard.pieces):
            rows = read_piece(*file.rows, piece, columns, anonymous=source.anonymous)
            yield from (row.values for row in rows if row.values is not None)
    except RunError as error:
        raise UsageError(str(error)) from error


def found_forms(look: Look) -> dict[str, list[str]]:
    """Return form (dialect and encoding) -> names of the delimited files that have it."""
    forms: dict[str, list[str]] = {}
    for file in look.files:
        if "dialect" in file.facts:
            forms.setdefault(f"{file.facts['dialect']}, {file.facts['encoding']}", []).append(file.name)
    return forms


def _doubts(
    sample: Sequence[Mapping[str, Any]], num_rows: int, files: Sequence[SourceFile], types: Mapping[str, pa.DataType]
) -> Iterator[str]:
    """Yield doubts on whether rows are products, and names are column names."""
    for file in files:
        if above := file.facts.get("above"):
            yield f"the columns' names: they stand below {', '.join(map(repr, above))} in {file.name}"
        numbers = [name for name in types if _NUMBER.fullmatch(name)] if file.format in ("csv", "excel") else []
        if numbers:
            yield (
                f"the columns' names: {numbers[0]!r} is one in {file.name}. If its first row is a product, write the "
                "names in a row above it"
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


def _measured(files: Sequence[FoundFile], source: InputConfig) -> tuple[InputConfig, list[SourceFile], list[str]]:
    """Measure the files. Return the source with the encoding and sheet that they need, and the guesses made, too."""
    measured: list[SourceFile] = []
    guessed: list[str] = []
    while len(measured) < len(files):
        file = files[len(measured)]
        try:
            measured.append(scan_file(file, source))
        except NotUtf8Error:
            source = source.model_copy(update={"encoding": "cp1252"})
            guessed.append(
                f"encoding: {file.name} is not UTF-8, and cp1252 (Windows) is the most frequent other one. Look at "
                "its letters; files that begin in UTF-8 are read as such, whatever stands here"
            )
        except SheetsError as error:
            source = source.model_copy(update={"sheet": error.sheets[0]})
            guessed.append(f"sheet: there are {', '.join(map(repr, error.sheets))}")
    return source, measured, guessed


def _stated(file: SourceFile, source: InputConfig) -> list[pa.Field]:
    """Return the columns that a file states; none for JSON Lines."""
    if file.format == "jsonl":
        return []
    uri, _ = file.rows
    filesystem, path = open_filesystem(uri, anonymous=source.anonymous and file.staged is None)
    with filesystem.open(path, "rb") as opened:
        return [each for each in pq.read_schema(opened) if each.name not in HIDDEN]


def _has_no_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return all(_has_no_bytes(kind.field(index).type) for index in range(kind.num_fields))
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))
