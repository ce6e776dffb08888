"""One of two compared runs, as its output folder is now: finished or still running."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hpd_core import CategorySchema
from pipelines.errors import RunError, UsageError
from pipelines.reporting.part_reader import Parts
from pipelines.reporting.run_folder import OpenedRun, open_run
from pipelines.reviewing.layer import Layer
from pipelines.store.asked_schemas import read_schemas
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger
from pipelines.store.totals import Totals

# The tables that hold a run's rows. What is not published in all of them yet is not looked at.
_ROW_TABLES = ("products", "attributes", "dead_letter")


@dataclass(frozen=True, slots=True)
class Side:
    """A run under comparison.

    Attributes:
        schemas: schemas of the run; None for runs from before these were recorded.
        shards: shards that are read; those that a running run adds later are ignored.
        totals: totals of these shards.
        reviews: people's verdicts on its answers, which replace them.
    """

    run: OpenedRun
    schemas: Mapping[str, CategorySchema] | None
    shards: Sequence[int]
    totals: Totals
    reviews: Layer

    @classmethod
    def open(cls, uri: str) -> Side:
        """Open the run. Raises `UsageError` if there is no run at `uri`, or it cannot be read."""
        try:
            run = open_run(uri)
            schemas = read_schemas(run.folder)
            shards = set(run.parts.shards)
            missing = {table: run.parts.missing(table) for table in _ROW_TABLES}
            for table, numbers in missing.items():
                if run.is_finished and numbers:
                    place = run.folder.describe(f"{table}/part-{numbers[0]:06d}.parquet")
                    raise UsageError(f"{place} is missing, though the run is finished")
                shards.difference_update(numbers)
            totals = run.status.totals
            if len(shards) < totals.shards:
                ledger = Ledger(run.folder, session="")
                totals = ledger.totals(ledger.manifests(shards))
            reviews = Layer.open(run.folder, schemas)
        except (OSError, RunError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"cannot read {uri}: {error}") from error
        if not shards:
            unpublished = run.status.totals.shards
            what = f"published any of its {unpublished:,} committed shards" if unpublished else "committed anything"
            raise UsageError(f"the run in {uri} has not {what} yet")
        return cls(run, schemas, sorted(shards), totals, reviews)

    @property
    def uri(self) -> str:
        """Output folder, as the user wrote it."""
        return self.run.folder.uri

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.run.plan.run_id

    @property
    def parts(self) -> Parts:
        """Tables of the shards that are read."""
        return Parts(self.run.folder, self.shards)

    def read(self, table: str, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a shard's part, as `Parts.read_one`; for attributes, with people's answers applied."""
        part = self.run.parts.read_one(table, shard, columns)
        return self.reviews.apply(part) if table == "attributes" else part


def open_sides(uri_a: str, uri_b: str) -> tuple[Side, Side]:
    """Open the two runs. Raises `UsageError` if one is not a run, or both are the same folder."""
    if _place(uri_a) == _place(uri_b):
        raise UsageError(f"{uri_a} and {uri_b} are the same folder; name two runs")
    return Side.open(uri_a), Side.open(uri_b)


def _place(uri: str) -> str:
    place = Folder(uri).absolute_uri
    return place if "://" in place else os.path.realpath(place)
