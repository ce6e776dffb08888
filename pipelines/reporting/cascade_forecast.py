"""Forecast of a cascade: both models on the pilot's products, and the larger model's share at a threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pipelines.config.extraction import JobConfig
from pipelines.config.operation import CascadeConfig
from pipelines.quality.both_answers import ALL, is_doubtful, judge_both, larger_model
from pipelines.quality.curve import Costs, Curve, TokenRates, make_curve, thresholds
from pipelines.reporting.forecast import Forecast, ForecastAsked, Interval
from pipelines.reporting.forecast_builder import EarlierCosts, catalog_total, forecast_from_pilots
from pipelines.reporting.pilot import LargerRun, MeasuredRun, Pilot

Pilots = Sequence[tuple[Pilot, MeasuredRun]]

_ASSUMED = "the larger model's time for what is not asked is taken off by its tokens: the pilot asked for everything"


@dataclass(frozen=True)
class CascadePilots:
    """Pilots in which both models have answered everything.

    Attributes:
        utilisation: as in `forecast_from_pilots`.
    """

    config: JobConfig
    pilots: Pilots
    source: str
    utilisation: float | None

    @cached_property
    def first(self) -> Forecast:
        """Forecast of the first model alone."""
        others = self._cascade.actors.max
        return forecast_from_pilots(self.config, self.pilots, self.source, self.utilisation, others)

    @property
    def _cascade(self) -> CascadeConfig:
        assert self.config.cascade is not None
        return self.config.cascade

    def at(self, below: float) -> Forecast:
        """Forecast both models with this threshold."""
        others = self.config.actors.max
        pilots = [(pilot, _at(run, below)) for pilot, run in self.pilots]
        larger = forecast_from_pilots(larger_model(self.config), pilots, self.source, self.utilisation, others)
        assumed = [] if below >= ALL else [_ASSUMED]
        return with_larger(self.first, replace(larger, assumed=[*larger.assumed, *assumed]), self._asked(below))

    def _asked(self, below: float) -> ForecastAsked:
        asked, products, answers = (
            catalog_total([(pilot, amounts(run, below)) for pilot, run in self.pilots])
            for amounts in (_num_asked, _is_asked, _num_answers)
        )
        rows = self.first.rows - self.first.dead_rows
        of_answers = asked.scaled(1 / max(1e-9, answers.estimate))
        # A ratio of two estimates: of all that is asked there is no doubt.
        share = Interval(1, 1, 1) if below >= ALL else Interval(*(min(1.0, limit) for limit in of_answers.limits))
        return ForecastAsked(below, share, min(1.0, products.estimate / rows))

    def curve(self, gold_run: str, gold: str) -> Curve:
        """Compute F1 against cost over thresholds. `gold_run`: run of both models over the gold file's products.

        Raises `UsageError` if one of the two cannot be read, or they do not belong together.
        """
        judged = judge_both(gold_run, gold)
        certainties = [
            answer.certainty
            for _, run in self.pilots
            for product in _larger(run).products.values()
            for answer in product.answers
        ]
        larger = self.at(1).larger
        assert larger is not None
        return make_curve(
            judged,
            gold,
            thresholds(certainties),
            lambda below: _costs(self.at(below)),
            _costs(self.first),
            _costs(larger),
        )


def with_larger(first: Forecast, larger: Forecast, asked: ForecastAsked) -> Forecast:
    """Combine the forecasts of both models."""
    # An assumption about both is stated once.
    assumed = [each for each in larger.assumed if each not in first.assumed]
    return replace(first, larger=replace(larger, assumed=assumed), asked=asked)


def asked_earlier(below: float, earlier: EarlierCosts) -> ForecastAsked:
    """Return the exact shares that an earlier run's larger model was asked."""
    answers = earlier.asked.get("asked", 0) / max(1, earlier.asked.get("answers", 0))
    decoded = sum(float(each.sum()) for each in earlier.counts.values())
    return ForecastAsked(
        below, Interval(answers, answers, answers), min(1.0, earlier.asked.get("products", 0) / decoded)
    )


def _costs(forecast: Forecast) -> Costs:
    per_1k = 1000 / (forecast.rows - forecast.dead_rows)
    usd = forecast.usd_per_1k
    asked = forecast.asked.answers.estimate if forecast.asked is not None else 0.0
    return Costs(forecast.billed_hours.scaled(per_1k).limits, None if usd is None else usd.limits, asked)


def _larger(run: MeasuredRun) -> LargerRun:
    assert run.larger is not None, "a pilot of a cascade has both models' answers"
    return run.larger


def _at(run: MeasuredRun, below: float) -> MeasuredRun:
    """Return what the larger model would have measured at this threshold."""
    larger = _larger(run)
    rates = TokenRates.of(list(larger.products.values()), larger.metrics)
    seconds = {number: rates.seconds_at(product, below) for number, product in larger.products.items()}
    answers = sum(_num_answers(run, below).values())
    asked = sum(_num_asked(run, below).values()) / max(1.0, answers)
    share = {
        "document_tokens": sum(_is_asked(run, below).values()) / max(1, len(seconds)),
        **dict.fromkeys(("key_tokens", "value_tokens", "scored_tokens"), asked),
    }
    return MeasuredRun(seconds, [_scaled(row, share) for row in larger.metrics], larger.engine)


def _scaled(row: Mapping[str, Any], share: Mapping[str, float]) -> dict[str, Any]:
    return {**row, **{name: (row.get(name) or 0) * factor for name, factor in share.items()}}


def _num_answers(run: MeasuredRun, below: float) -> dict[int, float]:
    return {number: float(len(product.answers)) for number, product in _larger(run).products.items()}


def _num_asked(run: MeasuredRun, below: float) -> dict[int, float]:
    return {
        number: float(sum(is_doubtful(answer.certainty, below) for answer in product.answers))
        for number, product in _larger(run).products.items()
    }


def _is_asked(run: MeasuredRun, below: float) -> dict[int, float]:
    return {number: float(asked > 0) for number, asked in _num_asked(run, below).items()}
