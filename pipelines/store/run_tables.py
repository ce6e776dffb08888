"""The committed parts of a run's tables, read shard by shard, with people's answers over the model's if wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import UsageError
from pipelines.store.folders import Folder, iter_requests
from pipelines.store.layer import Layer
from pipelines.store.ledger import PLAN_NAME
from pipelines.store.no_run import no_run
from pipelines.store.tables import part_name, part_number, read_columns

Place = tuple[str, int]
"""Identity of a product in a run: source_file and source_row. Product ids may be doubled."""
_READ_AT_ONCE = 8  # parts; a part is a shard's, so memory stays bounded however long the run is


class Parts:
    """The tables of some shards, read in order."""

    def __init__(self, folder: Folder, shards: Collection[int], layer: Layer | None = None) -> None:
        """Open the tables. `layer`: people's answers, which replace the model's; key columns must be read then."""
        self.folder = folder
        self.shards = sorted(shards)
        self._layer = layer

    def read(self, table: str, columns: Sequence[str], shards: Collection[int] | None = None) -> Iterator[pa.Table]:
        """Yield every part with rows, in the order of the shards. Parts that are missing are skipped, and columns that
        an older run lacks are null.

        Raises `UsageError` if a part cannot be read or does not belong to this table.
        """
        names = set(self.folder.list(table))
        here = (shard for shard in self.shards if shards is None or shard in shards)
        wanted = [shard for shard in here if part_name(shard) in names]
        parts = iter_requests(lambda shard: self.read_one(table, shard, columns), wanted, _READ_AT_ONCE)
        yield from (part for part in parts if part.num_rows)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as tuples of `columns`."""
        for part in self.read(table, columns):
            yield from zip(*(part.column(index).to_pylist() for index in range(len(columns))), strict=True)

    def rows_of(
        self, table: str, columns: Sequence[str], places: Collection[Place], shards: Collection[int] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of these products; `columns` hold source_file and source_row. Raises as `read`."""
        numbers = pa.array(sorted({number for _, number in places}), pa.int64())
        for part in self.read(table, columns, shards):
            near = part.filter(pc.is_in(part["source_row"], numbers)).to_pylist()
            yield from (row for row in near if (row["source_file"], row["source_row"]) in places)

    def answers_of(
        self, columns: Sequence[str], places: Collection[Place], shards: Collection[int] | None = None
    ) -> dict[Place, dict[str, list[dict[str, Any]]]]:
        """Return the rows of these products' answers by product and attribute, each in the order of its items."""
        found: dict[Place, dict[str, list[dict[str, Any]]]] = {place: {} for place in places}
        for row in self.rows_of("attributes", columns, places, shards):
            found[row["source_file"], row["source_row"]].setdefault(row["attribute"], []).append(row)
        for rows in (rows for answers in found.values() for rows in answers.values()):
            rows.sort(key=lambda row: int(row["value_index"]))
        return found

    def read_one(self, table: str, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return the part of one shard; `columns` as of `read_columns`. Raises as `read`."""
        part = read_columns(self.folder, table, part_name(shard), columns, UsageError)
        return part if self._layer is None or table != "attributes" else self._layer.apply(part)


def published_tables(uri: str) -> Parts:
    """Return the published parts in a folder, which may hold copied tables alone. Raises `UsageError` without any."""
    folder = Folder(uri)
    try:
        products, attributes = (
            {shard for name in folder.list(table) if (shard := part_number(name)) is not None}
            for table in ("products", "attributes")
        )
        if not products or not attributes:
            if not folder.exists(PLAN_NAME):
                raise no_run(folder)
            raise UsageError(f"the run in {uri} has not committed anything yet")
    except NotADirectoryError:
        raise no_run(folder) from None
    except OSError as error:
        raise UsageError(f"cannot read {uri}: {error}") from error
    return Parts(folder, products | attributes)
