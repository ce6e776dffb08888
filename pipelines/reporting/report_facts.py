"""The whole report as data."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.job.run_status import State
from pipelines.reporting.cost_facts import Account, ForecastFacts
from pipelines.reporting.sample_facts import ReportSample
from pipelines.reporting.value_facts import AttributeFacts, CategoryFacts, ReportQuality, ReportVerdict


@dataclass(frozen=True, slots=True)
class Facts:
    """The whole report.

    Attributes:
        attributes: facts per attribute over all its categories, most answers first; `by_category`: per attribute and
            category.
        forecast_place: path of the forecast, whether or not it exists.
        cascade: facts of a cascade's second pass; None for a run of one model.
        notes: caveats that a reader must know before trusting the numbers.
    """

    identity: Identity
    verdict: ReportVerdict
    totals: ReportTotals
    attributes: tuple[AttributeFacts, ...]
    by_category: tuple[AttributeFacts, ...]
    account: Account | None
    forecast: ForecastFacts | None
    forecast_place: str
    cascade: CascadeFacts | None
    categories: tuple[CategoryFacts, ...]
    quality: ReportQuality | None
    dead_letters: tuple[DeadReason, ...]
    sample: ReportSample
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, including the derived numbers that the page shows."""
        data: dict[str, Any] = _plain(self)
        return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        derived = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
        return {name: _plain(getattr(value, name)) for name in (*names, *derived)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers.
        return None
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="seconds")
    return value


@dataclass(frozen=True, slots=True)
class CascadeFacts:
    """Second pass of a cascade run.

    Attributes:
        larger: the larger model, with its adapter, as the user named them.
        below: threshold; answers less certain than this were asked again.
        answers: number of the first model's answers. `asked` of them, in `products` products, were asked again.
            `changed` of those now differ; `kept` are unchanged because the larger model had no answer.
    """

    larger: str
    below: float
    answers: int
    asked: int
    products: int
    changed: int
    kept: int


@dataclass(frozen=True, slots=True)
class DeadExample:
    """A dead-lettered row, cut to a readable length."""

    place: str
    product_id: str | None
    category: str | None
    message: str
    row: str | None


@dataclass(frozen=True, slots=True)
class DeadReason:
    """Dead letters of one error code.

    Attributes:
        messages: the most frequent messages, each with its number of rows. Only those that several rows share, or that
            name a category.
    """

    code: str
    stage: str
    count: int
    share: float
    messages: tuple[tuple[str, int], ...]
    examples: tuple[DeadExample, ...]


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
