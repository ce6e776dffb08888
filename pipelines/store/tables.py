"""The tables of a run: one declared Arrow schema each (store/columns.py), never inferred.

Complete from the first day: what a later version fills (normalised values, confidence) is nullable and
null until then, so an output folder never needs a migration.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import RunError, UsageError
from pipelines.store.columns import COLUMNS
from pipelines.store.folders import Folder

TABLES: Mapping[str, pa.Schema] = {
    name: pa.schema([pa.field(column.name, column.type, nullable=not column.required) for column in columns])
    for name, columns in COLUMNS.items()
}
ATTRIBUTES, PRODUCTS, DEAD_LETTER = TABLES["attributes"], TABLES["products"], TABLES["dead_letter"]


@contextmanager
def open_part(folder: Folder, name: str, kind: type[RunError] | type[UsageError] = RunError) -> Iterator[Any]:
    """A published part of a run as a file. Raises a `kind` that names it if it cannot be opened, or read in the block.

    Args:
        kind: `UsageError` for who was asked to look at a finished run: no rerun would continue that.
    """
    try:
        with folder.open(name) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise kind(f"cannot read {folder.describe(name)}: {error}") from error


def read_part(folder: Folder, name: str, columns: list[str] | None = None) -> pa.Table:
    """A published part of a run. Raises `RunError` if it cannot be read."""
    with open_part(folder, name) as file:
        return pq.read_table(file, columns=columns)


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """A shard's part of a table as it is stored: Parquet."""

    data: bytes
    num_rows: int


def encode(name: str, rows: Iterable[Mapping[str, Any]]) -> EncodedTable:
    """`rows` as a stored part of the table `name`. Raises as `to_table`."""
    table = to_table(name, rows)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return EncodedTable(buffer.getvalue(), table.num_rows)


def to_table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """`rows` as the table `name`. Raises `ValueError` on a column the schema does not declare or a null that
    it does not allow: pyarrow itself would drop the one and store the other."""
    schema = TABLES[name]
    rows = list(rows)
    if unknown := set().union(*rows) - set(schema.names):
        raise ValueError(f"table {name!r} has no column {sorted(unknown)}")
    table = pa.Table.from_pylist(rows, schema=schema)
    for column in schema:
        if not column.nullable and table.column(column.name).null_count:
            raise ValueError(f"table {name!r}, column {column.name!r}: null is not allowed")
    return table
