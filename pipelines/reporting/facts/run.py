"""Identity of the run, and the outcome of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.job.run_status import State


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the run, and of the engine that decoded it.

    Attributes:
        name: name of its folder, as its user chose it.
        layout: `tree`, `stacked`, or `ar` for plain autoregressive decoding.
        engine: self-description of the run's first engine.
        devices, instances: numbers of shards by the machine that decoded them.
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
    """Outcome of the rows of the committed shards.

    Attributes:
        dead_letters: number of rows given up; `refused` of them reached no engine (no schema, no text).
        carried: number of products carried over from an earlier run.
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
        """Number of rows that an engine could take."""
        return self.rows - self.refused

    @property
    def decoded(self) -> int:
        """Number of products that this run answered itself."""
        return self.products - self.carried
