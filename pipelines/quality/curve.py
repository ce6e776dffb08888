"""F1 of a cascade against its cost, over thresholds, from answers of both models to the same products.

Cost of the larger model at a threshold, from a run in which it was asked for everything.

An engine's time is split by the tokens that it forwards. The text of a product with any question is forwarded once.
Each attribute adds its key, its scored tokens and its answer; the tokens of unasked attributes are subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from pipelines.quality.both_answers import ALL, AskedAnswer, BothJudged, Integers, is_doubtful, outcome_counts
from pipelines.quality.scoring import NUM_RESAMPLES, SEED, AnswerOutcome, Estimate

CURVE_NAME = "cascade.json"
"""Name of the curve's file in a pilot's folder, beside the forecast."""

NUM_STEPS = 12
"""Number of thresholds between asking nothing again and asking all."""

Cost = tuple[float, float, float]
"""Amount per thousand products, with the limits of its 95% interval."""


@dataclass(frozen=True, slots=True)
class Point:
    """A way to answer the catalog.

    Attributes:
        below: the threshold; None for a model alone.
        asked: share of the answers that are asked again.
        f1: micro F1, with its 95% interval over products.
        hours_per_1k: engine hours of both models for a thousand products; `usd_per_1k`: None without a price.
    """

    name: str
    below: float | None
    asked: float
    f1: Estimate
    hours_per_1k: Cost
    usd_per_1k: Cost | None

    @property
    def cost(self) -> float:
        """Cost by which points are ordered: dollars, or hours if no price is known."""
        return self.hours_per_1k[0] if self.usd_per_1k is None else self.usd_per_1k[0]


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of ascending thresholds, and the two models alone.

    Attributes:
        gold: the gold file; `num_products` of its products and `num_labels` labels were judged.
        first, larger: each model alone.
    """

    gold: str
    num_products: int
    num_labels: int
    points: Sequence[Point]
    first: Point
    larger: Point

    def reaching(self, f1: float) -> Point | None:
        """Return the cheapest way, a single model included, to at least that F1; None if there is none."""
        every = [*self.points, self.first, self.larger]
        return min((each for each in every if each.f1.value >= f1), key=lambda each: each.cost, default=None)

    @property
    def best(self) -> Point:
        """Way with the highest F1; the cheapest of equals."""
        return max([*self.points, self.first, self.larger], key=lambda each: (each.f1.value, -each.cost))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Invert `to_dict`. Raises `KeyError` or `TypeError` for data that are not a curve's."""
        points = [_point(each) for each in data["points"]]
        return cls(**{**data, "points": points, **{name: _point(data[name]) for name in ("first", "larger")}})


def _point(data: Mapping[str, Any]) -> Point:
    usd = data["usd_per_1k"]
    costs = {"hours_per_1k": tuple(data["hours_per_1k"]), "usd_per_1k": None if usd is None else tuple(usd)}
    return Point(**{**data, **costs, "f1": Estimate(**data["f1"])})


def thresholds(certainties: Iterable[float], num_steps: int = NUM_STEPS) -> list[float]:
    """Choose thresholds with three digits, up to asking all again, each for about equally many more answers."""
    known = np.array([each for each in certainties if math.isfinite(each)])
    if not len(known):
        return [ALL]
    found = np.quantile(known, np.arange(1, num_steps) / num_steps)
    return sorted({ALL, *(rounded for each in found if 0 < (rounded := float(f"{each:.3g}")) < ALL)})


def f1_at(judged: BothJudged, below: Sequence[float]) -> list[Estimate]:
    """Compute micro F1 at each threshold, with an interval over products. All use the same resampled products."""
    asked = [(judged.certainty < each) | (each >= ALL) & np.isfinite(judged.certainty) for each in below]
    return estimates(judged, [np.where(each, judged.larger, judged.first) for each in asked])


def estimates(judged: BothJudged, outcomes: Sequence[Integers]) -> list[Estimate]:
    """Compute micro F1 of each way to answer, given as the outcome of every label."""
    generator = np.random.default_rng(SEED)
    share = np.full(judged.num_products, 1 / judged.num_products)
    weights = generator.multinomial(judged.num_products, share, size=NUM_RESAMPLES)
    found = []
    for each in outcomes:
        counts = outcome_counts(judged, each)
        low, high = np.percentile(_f1(weights @ counts), [2.5, 97.5])
        found.append(Estimate(float(_f1(counts.sum(axis=0))), float(low), float(high)))
    return found


def _f1(counts: Integers) -> Any:
    """Compute micro F1: [..., outcomes] -> [...]."""
    right = counts[..., AnswerOutcome.VC]
    predicted = right + counts[..., AnswerOutcome.NV] + counts[..., AnswerOutcome.VW]
    labelled = right + counts[..., AnswerOutcome.VN] + counts[..., AnswerOutcome.VW]
    return 2 * right / np.maximum(1, predicted + labelled)


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of a thousand products: engine hours, and dollars if there is a price; with the share asked again."""

    hours_per_1k: Cost
    usd_per_1k: Cost | None
    asked: float


def make_curve(
    judged: BothJudged,
    gold: str,
    below: Sequence[float],
    costs_at: Callable[[float], Costs],
    of_first: Costs,
    of_larger: Costs,
) -> Curve:
    """Compute the curve over these thresholds.

    Args:
        costs_at: costs of both models at a threshold.
        of_first, of_larger: costs of each model alone.
    """
    points = [
        _with_costs("cascade", each, f1, costs_at(each)) for each, f1 in zip(below, f1_at(judged, below), strict=True)
    ]
    first, larger = estimates(judged, [judged.first, judged.larger])
    return Curve(
        gold,
        judged.num_products,
        len(judged.products),
        points,
        _with_costs("first model alone", None, first, of_first),
        _with_costs("larger model alone", None, larger, of_larger),
    )


def _with_costs(name: str, below: float | None, f1: Estimate, costs: Costs) -> Point:
    return Point(name, below, costs.asked, f1, costs.hours_per_1k, costs.usd_per_1k)


TOKEN_KINDS = ("document", "key", "value", "scored")
"""Kinds of tokens that an engine forwards for a product."""


@dataclass(frozen=True, slots=True)
class AskedProduct:
    """A product for which the larger model was asked everything. `seconds`: engine seconds for this product alone."""

    seconds: float
    answers: Sequence[AskedAnswer]


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Rates over all products.

    Attributes:
        seconds: engine seconds per forwarded token.
        own_tokens: mean tokens of an attribute: its key, and the tokens forwarded to score it.
    """

    seconds: float
    own_tokens: float

    @classmethod
    def of(cls, products: Sequence[AskedProduct], metrics: Sequence[Mapping[str, Any]]) -> TokenRates:
        """Compute the rates from the larger model's rows of the metrics."""
        tokens = {kind: sum(row.get(f"{kind}_tokens") or 0 for row in metrics) for kind in TOKEN_KINDS}
        seconds, answers = sum(each.seconds for each in products), sum(len(each.answers) for each in products)
        return cls(seconds / max(1, sum(tokens.values())), (tokens["key"] + tokens["scored"]) / max(1, answers))

    def seconds_at(self, product: AskedProduct, below: float) -> float:
        """Estimate the product's engine seconds at that threshold: from 0 to the measured seconds."""
        asked = [each for each in product.answers if is_doubtful(each.certainty, below)]
        if not asked:
            return 0.0
        left_out = (len(product.answers) - len(asked)) * self.own_tokens
        left_out += sum(each.num_tokens for each in product.answers) - sum(each.num_tokens for each in asked)
        # By the mean of all keys a product with short ones could come out below what its answers take.
        answers = sum(each.num_tokens + self.own_tokens for each in asked) * self.seconds
        return max(min(answers, product.seconds), product.seconds - left_out * self.seconds)
