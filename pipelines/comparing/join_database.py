"""Database for the out-of-core join of two runs: above `MEMORY_LIMIT` it spills to disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.store.run import Run

MEMORY_LIMIT = "2GB"  # of DuckDB
SIDES = ("a", "b")
_MAX_THREADS = 8  # each needs memory of its own


@dataclass(slots=True)
class Codes:
    """Names encoded as numbers, in order of appearance, because they take less space and join faster."""

    names: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def encode(self, column: pa.ChunkedArray) -> pa.Array:
        """Encode the names in `column` as numbers; null stays null."""
        for name in pc.unique(column).to_pylist():
            if name is not None and name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
        codes = pc.index_in(column, value_set=pa.array(self.names, column.type)).cast(pa.int32())
        return codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes


class JoinDatabase:
    """Two runs and the tables made of them.

    Attributes:
        sides: the runs by their names in the tables.
        by_row: whether rows match by file and row number, else by product id; `key`: these columns.
        files, categories, attributes, runs: names that the tables hold as numbers.
        starts: first id of every shard, to find the shard of a row.
    """

    def __init__(self, a: Run, b: Run, by_row: bool, folder: Path) -> None:
        self.sides: Mapping[str, Run] = {"a": a, "b": b}
        self.by_row, self.key = by_row, "file, source_row" if by_row else "product_id"
        self.files, self.categories, self.attributes, self.runs = Codes(), Codes(), Codes(), Codes()
        self.starts: dict[str, list[int]] = {"a": [], "b": []}
        self._connection = duckdb.connect(
            str(folder / "compared.duckdb"),
            config={
                "memory_limit": MEMORY_LIMIT,
                "threads": min(_MAX_THREADS, os.cpu_count() or 1),
                "temp_directory": str(folder / "spilled"),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def execute(self, query: str) -> None:
        """Run a statement that returns no rows."""
        self._connection.execute(query)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._connection.execute(query).fetchall()

    def one(self, query: str) -> tuple[Any, ...]:
        """Return the only row of a query."""
        (row,) = self.rows(query)
        return row

    def insert(self, target: str, columns: Mapping[str, Any]) -> None:
        """Append to a table."""
        with self.part(pa.table(dict(columns))):
            self._connection.execute(f"insert into {target} select * from part")

    @contextmanager
    def part(self, table: pa.Table) -> Iterator[None]:
        """Register a table as `part` for the time of the block."""
        self._connection.register("part", table)
        try:
            yield
        finally:
            self._connection.unregister("part")

    def put(self, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Register a small table of names and numbers as `name`."""
        kinds = {"file": pa.string(), "name": pa.string()}
        values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        table = {
            column: pa.array(value, kinds.get(column, pa.int64()))
            for column, value in zip(columns, values, strict=True)
        }
        if "file" in table:
            table["file"] = self.files.encode(pa.chunked_array([table["file"]]))
        self._connection.register(name, pa.table(table))

    def code_of_run(self, run_id: str) -> int:
        """Return the code of a run."""
        return int(self.runs.encode(pa.chunked_array([[run_id]]))[0].as_py())
