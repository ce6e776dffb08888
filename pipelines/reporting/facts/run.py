"""Which run it is, and what became of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.job.run_status import State


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run this is, and what decoded it.

    Attributes:
        name: of its folder, which is the name that its user gave it.
        layout: `tree`, `stacked`, or `ar` for plain autoregressive decoding.
        engine: as the run's first engine described itself.
        devices, instances: shards by the machine they were decoded on.
    """

    uri: str
    name: str
    run_id: str
    state: State
    created_at: str
    config_hash: str
    schema_hash: str
    limit: int | None
    base_run_id: str | None
    layout: str
    engine: Mapping[str, Any]
    devices: Mapping[str, int]
    instances: Mapping[str, int]
    inputs: tuple[InputFile, ...]


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the catalog, as the plan has it. `size` in bytes."""

    name: str
    size: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class ReportTotals:
    """What became of the rows of the committed shards.

    Attributes:
        dead_letters: rows that were given up; `refused`: of them, those that no engine saw (no schema, no text).
        carried: products taken over from an earlier run.
    """

    planned_rows: int
    planned_shards: int
    shards: int
    rows: int
    products: int
    dead_letters: int
    refused: int
    carried: int
    statuses: Mapping[str, int]

    @property
    def extractable(self) -> int:
        """Rows that an engine could take."""
        return self.rows - self.refused

    @property
    def decoded(self) -> int:
        """Products with an answer of this run's own."""
        return self.products - self.carried
