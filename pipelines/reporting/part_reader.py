"""Reader of the committed parts of a run's tables, in order, with read-ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import UsageError
from pipelines.reviewing.layer import Layer
from pipelines.store.folders import Folder
from pipelines.store.tables import TABLES, open_part

_READ_AHEAD = 4  # parts; a part is a shard's, so memory stays bounded however long the run is


class Parts:
    """The tables of a run, by shard.

    Only committed parts: one that was published without its shard's manifest is ignored.
    """

    def __init__(self, folder: Folder, shards: Collection[int], layer: Layer | None = None) -> None:
        """Open the tables of these shards. `layer`: people's answers, which replace the model's."""
        self._folder = folder
        self._layer = layer
        self.shards = sorted(shards)
        self._there: dict[str, frozenset[str]] = {}

    def layered(self, layer: Layer) -> Parts:
        """Return the same tables with people's answers over the model's.

        `attributes` is then read with its key columns.
        """
        return Parts(self._folder, self.shards, layer)

    def missing(self, table: str) -> list[int]:
        """Return committed shards that have no part of `table` in its public folder."""
        return [shard for shard in self.shards if _name(table, shard) not in self._names(table)]

    def read(self, table: str, columns: Sequence[str], shards: Collection[int] | None = None) -> Iterator[pa.Table]:
        """Yield every part with rows, in the order of the shards. Columns that an older run lacks are null.

        Raises `UsageError` if a part cannot be read or does not belong to this table.
        """
        wanted = [shard for shard in self.shards if shards is None or shard in shards]
        names = iter([name for shard in wanted if (name := _name(table, shard)) in self._names(table)])
        with ThreadPoolExecutor(_READ_AHEAD) as pool:
            pending: deque[Future[pa.Table]] = deque()
            pending.extend(pool.submit(self._read, table, name, columns) for name in islice(names, _READ_AHEAD))
            while pending:
                part = pending.popleft().result()
                pending.extend(pool.submit(self._read, table, name, columns) for name in islice(names, 1))
                if part.num_rows:
                    yield part

    def read_one(self, table: str, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return the part of one shard, as `read`. `a.list.element.b` reads only member `b` of a nested column `a`."""
        return self._read(table, _name(table, shard), columns)

    def _names(self, table: str) -> frozenset[str]:
        if table not in self._there:
            self._there[table] = frozenset(f"{table}/{name}" for name in self._folder.list(table))
        return self._there[table]

    def _read(self, table: str, name: str, columns: Sequence[str]) -> pa.Table:
        declared = TABLES[table]
        with open_part(self._folder, name, UsageError) as file:
            parquet = pq.ParquetFile(file)
            there = parquet.schema_arrow.names
            part = parquet.read(columns=[column for column in columns if column.split(".")[0] in there])
        names = [column.split(".")[0] for column in columns]
        for column in names:
            if column in there:
                continue
            field = declared.field(column)
            if not field.nullable:
                place = self._folder.describe(name)
                raise UsageError(f"{place}: column {column!r} is missing; this is no {table} table")
            part = part.append_column(field, pa.nulls(part.num_rows, field.type))
        part = part.select(names)
        return part if self._layer is None or table != "attributes" else self._layer.apply(part)


def _name(table: str, shard: int) -> str:
    return f"{table}/part-{shard:06d}.parquet"
