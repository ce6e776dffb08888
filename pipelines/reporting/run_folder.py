"""A run folder opened for a report: finished, running or stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.errors import RunError, UsageError
from pipelines.job.run_plan import Plan, find_run, is_made_up
from pipelines.job.run_status import Status, read_status
from pipelines.reporting.formats import leaf
from pipelines.reporting.part_reader import Parts
from pipelines.reporting.table_scan import Pairs
from pipelines.store.asked_schemas import read_schemas
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """Facts about a run that are known before its tables are read.

    Attributes:
        parts: tables of the shards committed when `status` was read, so that all numbers cover the same shards.
        engine: self-description of the first engine; empty if none has started.
        input_settings: the `input` section of its configuration.
        precision: target precision of accepted values (`accept`); None if none was requested.
        booleans: (category, attribute) of the attributes whose values are true or false.
    """

    folder: Folder
    status: Status
    plan: Plan
    parts: Parts
    engine: Mapping[str, Any]
    input_settings: Mapping[str, Any]
    booleans: Pairs
    precision: float | None

    @property
    def name(self) -> str:
        """Name that the user knows the run by: the given run id, or the folder."""
        run_id = self.plan.run_id
        return leaf(self.folder.absolute_uri) if is_made_up(run_id) else run_id

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


def open_run(uri: str) -> OpenedRun:
    """Open a run. Raises `UsageError` if there is no run, or it cannot be read."""
    try:
        status = read_status(uri)
        folder, plan = find_run(uri)
        ledger = Ledger(folder, session="")
        manifest = ledger.finished()
        engine = dict((manifest or {}).get("engine") or ledger.engine())
        config = (manifest or {}).get("config") or {}
        settings = dict(config.get("input") or plan.result_config.get("input") or {})
        accept = (manifest or {}).get("accept") or config.get("accept") or {}
        booleans = {
            (category, attribute.name)
            for category, schema in (read_schemas(folder) or {}).items()
            for attribute in schema.attributes
            if attribute.type == "boolean"
        }
    except (OSError, RunError, ValueError, KeyError, TypeError, AttributeError) as error:
        # The last four: one of its JSON files is damaged.
        raise UsageError(f"cannot read {uri}: {type(error).__name__}: {error}") from error
    return OpenedRun(
        folder, status, plan, Parts(folder, status.committed), engine, settings, booleans, accept.get("precision")
    )


def state_notes(run: OpenedRun) -> list[str]:
    """Return notes on the scope of the numbers, if they do not cover all of a run by a model."""
    notes = []
    if run.plan.result_config.get("decoding") == "made-up":
        notes.append("The answers are made up: no model has read the products (decoding: made-up).")
    if run.is_finished:
        return notes
    status = run.status
    state = "still going" if status.state == "running" else "stopped; the job's own command continues it"
    if not status.totals.shards:
        return [*notes, f"This run is {state}: no shard is committed yet, so there is nothing to report."]
    planned = status.planned_shards or 0  # known, as some are committed
    return [
        *notes,
        f"This run is {state}: all numbers are of the {status.totals.shards:,} of {planned:,} shards "
        f"({status.totals.rows:,} of {status.planned_rows:,} rows) that are committed.",
    ]
