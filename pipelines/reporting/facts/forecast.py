"""What was expected, and what other circumstances would take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expectation:
    """A forecast number with its 95% interval, and what came true.

    Attributes:
        unit: usd or hours.
        is_inside: whether the interval holds what came true; None where that is not known, or is of other rows,
            another machine or only some of the shards.
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
    """What was expected.

    Attributes:
        is_comparable: the run has finished the very rows that the forecast is of, on the machine that it is for, took
            nothing over, and has the metrics (and prices, if any) of all shards.
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
    """What it takes to be done in so many hours; None where no number of engines is enough."""

    hours: float
    engines: int | None
    nodes: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class SensitivityFacts:
    """What the run would take if one thing were otherwise. `ratio`: how much more, as a share."""

    what: str
    change: str
    hours: float
    usd: float | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Other circumstances, by what the run measured, for all its planned rows. `hours` of engines."""

    rows: int
    hours: float
    usd: float | None
    engines_per_node: int
    deadlines: tuple[DeadlineFacts, ...]
    sensitivity: tuple[SensitivityFacts, ...]
