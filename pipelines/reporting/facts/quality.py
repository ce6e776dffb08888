"""Gold scores of the run, and a comparison with other runs."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.confidence.reliability import Reliability
from pipelines.job.run_status import State
from pipelines.quality.scoring import Estimate


@dataclass(frozen=True, slots=True)
class Band:
    """Values for labelled attributes by the model's probability of the whole answer, in [low, high)."""

    low: float
    high: float
    num_values: int
    num_right: int


@dataclass(frozen=True, slots=True)
class ReportQuality:
    """Scores against gold, exact match.

    Attributes:
        reliability: reliability of the labelled values' `reliability_of`: confidence, or probability without a
            calibration. None if no value has one.
        ece_of_probability: expected calibration error of the model's own probability.
    """

    gold: str
    num_products: int
    num_labels: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    hallucination_rate: float | None
    bands: tuple[Band, ...]
    reliability: Reliability | None
    reliability_of: str
    ece_of_probability: float | None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run compared with others. `is_this`: the report's own run. `num_scored`: number of gold products in it."""

    uri: str
    run_id: str
    state: State
    is_this: bool
    model: str
    adapter: str | None
    layout: str
    products: int
    dead_letters: int
    num_scored: int | None
    f1: Estimate | None
    usd_per_1k: float | None
    seconds_per_1k: float | None
    products_per_second: float | None
