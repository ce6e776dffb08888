"""Tables of a run: one declared Arrow schema each (store/columns.py), never inferred.

Complete from the start: columns that a later version fills (normalised values, confidence) are null until
then. So an output folder never needs a migration.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hpd_core import Evidence
from pipelines.errors import RunError, UsageError
from pipelines.store.columns import COLUMNS
from pipelines.store.folders import Folder

TABLES: Mapping[str, pa.Schema] = {
    name: pa.schema([pa.field(column.name, column.type, nullable=not column.required) for column in columns])
    for name, columns in COLUMNS.items()
}
ATTRIBUTES, PRODUCTS, DEAD_LETTER = TABLES["attributes"], TABLES["products"], TABLES["dead_letter"]


def part_name(shard: int) -> str:
    """Return the file name of a shard's part of a table."""
    return f"part-{shard:06d}.parquet"


def part_number(name: str) -> int | None:
    """Return the shard of a part by its file name; None for another file."""
    match = re.fullmatch(r"part-(\d+)\.parquet", name)
    return int(match[1]) if match else None


@contextmanager
def open_part(folder: Folder, name: str, kind: type[RunError] | type[UsageError] = RunError) -> Iterator[Any]:
    """Open a published part of a run. Raise a `kind` naming it if it cannot be opened, or read in the block.

    Args:
        kind: `UsageError` for commands that look at a finished run, which no rerun would continue.
    """
    try:
        with folder.open(name) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise kind(f"cannot read {folder.describe(name)}: {error}") from error


def read_part(folder: Folder, name: str, columns: list[str] | None = None) -> pa.Table:
    """Read a published part of a run. Raise `RunError` if it cannot be read."""
    with open_part(folder, name) as file:
        return pq.read_table(file, columns=columns)


def read_columns(
    folder: Folder, table: str, part: str, columns: Sequence[str], kind: type[RunError] | type[UsageError] = RunError
) -> pa.Table:
    """Read columns of a part of `table`; those that an older run lacks are null. Raise a `kind` if it cannot be read or
    does not belong to this table.

    Args:
        columns: `a.list.element.b` reads only member `b` of a nested column `a`.
        kind: as of `open_part`.
    """
    name = f"{table}/{part}"
    with open_part(folder, name, kind) as file:
        parquet = pq.ParquetFile(file)
        there = parquet.schema_arrow.names
        found = parquet.read(columns=[column for column in columns if column.split(".")[0] in there])
    names = [column.split(".")[0] for column in columns]
    for field in (TABLES[table].field(column) for column in names if column not in there):
        if not field.nullable:
            raise kind(f"{folder.describe(name)}: column {field.name!r} is missing; this is no {table} table")
        found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found.select(names)


def completed(name: str, part: pa.Table) -> pa.Table:
    """Return a part of the table `name` with all of its columns; those that an older run lacks are null."""
    columns = []
    for column in TABLES[name]:
        if column.name not in part.column_names:
            columns.append(pa.nulls(part.num_rows, column.type))
            continue
        stored = part[column.name]
        # What an older run's structs lack is null.
        columns.append(stored if stored.type.equals(column.type) else pa.array(stored.to_pylist(), column.type))
    return pa.table(columns, schema=TABLES[name])


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """A shard's part of a table as stored: Parquet."""

    data: bytes
    num_rows: int


def encode(name: str, rows: Iterable[Mapping[str, Any]]) -> EncodedTable:
    """Encode `rows` as a stored part of the table `name`. Raise as `to_table`."""
    return encode_table(to_table(name, rows))


def encode_table(table: pa.Table) -> EncodedTable:
    """Encode `table` as a stored part."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return EncodedTable(buffer.getvalue(), table.num_rows)


def to_table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return `rows` as the table `name`. Raise `ValueError` on a column the schema does not declare or a null that it
    does not allow: pyarrow itself would drop the one and store the other."""
    schema, rows = TABLES[name], list(rows)
    if unknown := set().union(*rows) - set(schema.names):
        raise ValueError(f"table {name!r} has no column {sorted(unknown)}")
    table = pa.Table.from_pylist(rows, schema=schema)
    for column in schema:
        if not column.nullable and table.column(column.name).null_count:
            raise ValueError(f"table {name!r}, column {column.name!r}: null is not allowed")
    return table


def stored_evidence(entry: Mapping[str, Any]) -> Evidence:
    """Return the place; the text around it is kept in the table only."""
    return Evidence(entry["field"], entry["start"], entry["end"], entry["text"], entry["match"])
