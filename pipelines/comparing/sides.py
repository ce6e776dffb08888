"""One of the two runs that are compared, as its output folder has it now: finished or still going."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hpd_core import CategorySchema
from pipelines.carryover import read_schemas
from pipelines.errors import UsageError
from pipelines.folders import Folder
from pipelines.ledger import Ledger
from pipelines.run_plan import PLAN_NAME, Plan
from pipelines.tables import TABLES

# The tables that hold a run's rows. A shard counts as committed here when it is published in all of them.
_ROW_TABLES = ("products", "attributes", "dead_letter")


@dataclass(frozen=True, slots=True)
class Side:
    """A run.

    Attributes:
        uri: as the user wrote it.
        engine: what decoded it; empty before its first engine has started.
        schemas: what it asked for; None for runs of before this was kept.
        finished_at: when it finished (ISO 8601, UTC); None if it has not.
        parts: names of the published parts, the same in every table; what a run that is still going adds to them while
            it is compared is not looked at.
    """

    uri: str
    folder: Folder
    plan: Plan
    engine: Mapping[str, Any]
    schemas: Mapping[str, CategorySchema] | None
    finished_at: str | None
    parts: Sequence[str]

    @classmethod
    def open(cls, uri: str) -> Side:
        """Raises `UsageError` if there is no run at `uri`, or it cannot be read."""
        folder = Folder(uri)
        try:
            folder.require()
            stored = folder.read_json(PLAN_NAME)
            if stored is None:
                raise UsageError(f"there is no run in {uri}")
            plan = Plan.from_json(stored, folder.describe(PLAN_NAME))
            ledger = Ledger(folder, session="")
            # In this order: what a run publishes after it was seen unfinished makes it no less so.
            manifest = ledger.finished()
            engine = ledger.engine()
            schemas = read_schemas(folder)
            names = {table: {name for name in folder.list(table) if name.endswith(".parquet")} for table in _ROW_TABLES}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"cannot read {uri}: {error}") from error
        common = set.intersection(*names.values())
        if manifest is not None:
            for table, found in names.items():
                if missing := sorted(set.union(*names.values()) - found):
                    raise UsageError(
                        f"{folder.describe(f'{table}/{missing[0]}')} is missing, though the run is finished"
                    )
        if not common:
            raise UsageError(f"the run in {uri} has not committed anything yet")
        finished_at = None if manifest is None else str(manifest.get("finished_at"))
        return cls(uri, folder, plan, engine, schemas, finished_at, sorted(common))

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.plan.run_id

    def read(self, table: str, part: str, columns: Sequence[str]) -> pa.Table:
        """Columns of a part, in this order; null where the run is older than the column. `a.list.element.b` names a
        member of a nested column `a`. Raises `UsageError` if the part cannot be read."""
        name = f"{table}/{part}"
        try:
            with self.folder.open(name) as file:
                parquet = pq.ParquetFile(file)
                there = set(parquet.schema_arrow.names)
                read = parquet.read(columns=[column for column in columns if column.split(".")[0] in there])
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"cannot read {self.folder.describe(name)}: {error}") from error
        declared = TABLES[table]
        for column in dict.fromkeys(column.split(".")[0] for column in columns):
            if column in there:
                continue
            if not declared.field(column).nullable:
                raise UsageError(
                    f"{self.folder.describe(name)}: column {column!r} is missing; this is no {table} table"
                )
            read = read.append_column(declared.field(column), pa.nulls(read.num_rows, declared.field(column).type))
        return read.select(list(dict.fromkeys(column.split(".")[0] for column in columns)))


def open_sides(uri_a: str, uri_b: str) -> tuple[Side, Side]:
    """The two runs. Raises `UsageError` if one is none, or both are the same folder."""
    if _place(uri_a) == _place(uri_b):
        raise UsageError(f"{uri_a} and {uri_b} are the same folder; name two runs")
    return Side.open(uri_a), Side.open(uri_b)


def _place(uri: str) -> str:
    place = Folder(uri).absolute_uri
    return place if "://" in place else os.path.realpath(place)
