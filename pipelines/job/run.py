"""A run's output folder, opened to be read: its plan, its status, and the committed parts of its tables.

    run = Run.open("runs/catalog")                        # finished, running or stopped
    run.parts.read("attributes", ["attribute", "status"])  # as stored, part by part
    run.read("attributes", 3, [...])                      # shard 3's, with people's answers over the model's

All that compares, reports, reviews, exports or judges a run reads it through `Run`; what needs its tables alone, which
may be copied from elsewhere, through `published_tables` (store/run_tables.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from hpd_core import CategorySchema
from pipelines.errors import RunError, UsageError
from pipelines.job.run_plan import Plan, find_run, is_made_up
from pipelines.job.run_status import Status, read_status
from pipelines.store.folders import Folder
from pipelines.store.layer import Layer
from pipelines.store.ledger import Ledger
from pipelines.store.no_run import read_schemas
from pipelines.store.run_tables import Parts
from pipelines.store.tables import part_name
from pipelines.store.totals import Totals

_ROW_TABLES = ("products", "attributes", "dead_letter")


@dataclass(frozen=True)
class Run:
    """A run that is read, as its output folder is now: finished, running or stopped.

    Attributes:
        uri: output folder, as the user wrote it.
        schemas: schemas that normalise its values; None for runs from before these were recorded.
        engine: self-description of the first engine; empty if none has started.
        input_settings: the `input` section of its configuration.
        precision: target precision of accepted values (`accept`); None if none was requested.
        parts: tables of the shards that were committed and published when `status` was read.
        totals: totals of these shards.
    """

    uri: str
    folder: Folder
    status: Status
    plan: Plan
    schemas: Mapping[str, CategorySchema] | None
    engine: Mapping[str, Any]
    input_settings: Mapping[str, Any]
    precision: float | None
    parts: Parts
    totals: Totals

    @classmethod
    def open(cls, uri: str) -> Run:
        """Open a run. Raises `UsageError` if there is no run at `uri`, or it cannot be read."""
        try:
            status = read_status(uri)
            folder, plan = find_run(uri)
            ledger = Ledger(folder, session="")
            manifest = ledger.finished() or {}
            engine = dict(manifest.get("engine") or ledger.engine())
            config = manifest.get("config") or {}
            settings = dict(config.get("input") or plan.result_config.get("input") or {})
            accept = manifest.get("accept") or config.get("accept") or {}
            schemas = read_schemas(folder)
            shards = _published(folder, status)
            totals = status.totals
            if len(shards) < totals.shards:
                totals = ledger.totals(ledger.manifests(shards))
        except (OSError, RunError, ValueError, KeyError, TypeError, AttributeError) as error:
            # The last four: one of its JSON files is damaged.
            raise UsageError(f"cannot read {uri}: {type(error).__name__}: {error}") from error
        parts, precision = Parts(folder, shards), accept.get("precision")
        return cls(uri, folder, status, plan, schemas, engine, settings, precision, parts, totals)

    @classmethod
    def open_with_rows(cls, uri: str) -> Run:
        """Open a run of which some rows can be read. Raises as `open`, or `UsageError` if it has none."""
        run = cls.open(uri)
        if not run.shards:
            unpublished = run.status.totals.shards
            what = f"published any of its {unpublished:,} committed shards" if unpublished else "committed anything"
            raise UsageError(f"the run in {uri} has not {what} yet")
        return run

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.plan.run_id

    @property
    def name(self) -> str:
        """Name that the user knows the run by: the given run id, or the folder."""
        if not is_made_up(self.run_id):
            return self.run_id
        return self.folder.absolute_uri.rstrip("/").rsplit("/", 1)[-1]

    @property
    def layout(self) -> str:
        """Decoding method, in one word."""
        return "ar" if self.engine.get("decoding") == "ar" else str(self.engine.get("layout") or "unknown")

    @property
    def device(self) -> str | None:
        """Device of the first engine; None if none has started."""
        return self.engine.get("device_name") or self.engine.get("device")

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished."""
        return self.status.state == "finished"

    @property
    def shards(self) -> Sequence[int]:
        """Shards that are read; those that a running run adds later are ignored."""
        return self.parts.shards

    @property
    def num_unpublished(self) -> int:
        """Number of committed shards that are not published yet, and left out."""
        return self.status.totals.shards - len(self.shards)

    @cached_property
    def booleans(self) -> Set[tuple[str, str]]:
        """Attributes whose values are true or false: conclusions, which stand nowhere in the text."""
        return {
            (category, attribute.name)
            for category, schema in (self.schemas or {}).items()
            for attribute in schema.attributes
            if attribute.type == "boolean"
        }

    @cached_property
    def reviews(self) -> Layer:
        """People's verdicts on its answers, which replace them. Raises `UsageError` if they cannot be read."""
        try:
            return Layer.open(self.folder, self.schemas)
        except (OSError, RunError) as error:
            raise UsageError(f"cannot read the reviews of {self.uri}: {error}") from error

    @cached_property
    def reviewed(self) -> Parts:
        """The tables with people's answers over the model's; `attributes` is read with its key columns."""
        return Parts(self.folder, self.shards, self.reviews)

    def read(self, table: str, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a shard's part, with people's answers over the model's."""
        return self.reviewed.read_one(table, shard, columns)

    def is_same(self, other: Run) -> bool:
        """Return whether the other run is in the same folder."""
        return _place(self.folder) == _place(other.folder)

    def notes(self) -> list[str]:
        """Return notes on the scope of its numbers, if they do not cover all of a run by a model."""
        notes = []
        if self.plan.result_config.get("decoding") == "made-up":
            notes.append("The answers are made up: no model has read the products (decoding: made-up).")
        if self.is_finished:
            return notes
        totals = self.status.totals
        state = "still going" if self.status.state == "running" else "stopped; the job's own command continues it"
        if not totals.shards:
            return [*notes, f"This run is {state}: no shard is committed yet, so there is nothing to report."]
        planned = self.status.planned_shards
        return [
            *notes,
            f"This run is {state}: all numbers are of the {totals.shards:,} of {planned:,} shards "
            f"({totals.rows:,} of {self.status.planned_rows:,} rows) that are committed.",
        ]


def _published(folder: Folder, status: Status) -> set[int]:
    """Return the committed shards with a part in each table. Raises `UsageError` if a finished run lacks one."""
    shards = set(status.committed)
    for table in _ROW_TABLES:
        names = set(folder.list(table))
        missing = sorted(shard for shard in shards if part_name(shard) not in names)
        if missing and status.state == "finished":
            place = folder.describe(f"{table}/{part_name(missing[0])}")
            raise UsageError(f"{place} is missing, though the run is finished")
        shards.difference_update(missing)
    return shards


def _place(folder: Folder) -> str:
    place = folder.absolute_uri
    return place if "://" in place else os.path.realpath(place)
