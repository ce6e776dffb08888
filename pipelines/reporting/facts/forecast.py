"""The forecast against the actual numbers, and estimates for other circumstances."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expectation:
    """A forecast number with its 95% interval, and the actual number.

    Attributes:
        unit: usd or hours.
        is_inside: whether the interval holds the actual number. None if that is unknown, or is for other rows, another
            machine or only some of the shards.
    """

    what: str
    unit: str
    estimate: float
    low: float
    high: float
    actual: float | None
    is_inside: bool | None


@dataclass(frozen=True, slots=True)
class ForecastFacts:
    """The forecast, line by line, against the actual numbers.

    Attributes:
        is_comparable: whether the run finished exactly the forecast's rows on the forecast's machine, carried nothing
            over, and has the metrics (and prices, if any) of all shards.
    """

    place: str
    basis: str
    source: str
    created_at: str
    model: str
    device: str
    rows: int
    sampled: int
    num_batches: int
    seed: int | None
    is_comparable: bool
    lines: tuple[Expectation, ...]
    categories: tuple[Expectation, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadlineFacts:
    """Engines needed to finish within `hours`; None if no number of engines is enough."""

    hours: float
    engines: int | None
    nodes: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class SensitivityFacts:
    """Hours and dollars of the run if one thing changed. `ratio`: relative increase, as a share."""

    what: str
    change: str
    hours: float
    usd: float | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Estimates for other circumstances, measured by the run, for all its planned rows. `hours`: engine hours."""

    rows: int
    hours: float
    usd: float | None
    engines_per_node: int
    deadlines: tuple[DeadlineFacts, ...]
    sensitivity: tuple[SensitivityFacts, ...]
