"""Comparison of two sets of answers to the same gold products, with a paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.quality import scoring
from pipelines.quality.scoring import AnswerJudgement, Comparison, RateEstimates


@dataclass(frozen=True, slots=True)
class PairedRates:
    """Micro precision, recall and F1 of both, and B minus A with the interval of a paired bootstrap."""

    comparison: Comparison
    a: RateEstimates
    b: RateEstimates
    difference: RateEstimates


def paired_rates(
    comparison: Comparison, first: Sequence[AnswerJudgement], second: Sequence[AnswerJudgement], num_products: int
) -> PairedRates:
    """Score A, `first`, and B, `second`: judgements of the same labels of the same `num_products`."""
    rates_a, rates_b = (
        scoring.count(judgement.outcome for judgement in judgements).rates for judgements in (first, second)
    )
    # The same seed and number of products draw the same products for both: the bootstrap is a paired one.
    samples_a, samples_b = (scoring.bootstrap(judgements, num_products).micro for judgements in (first, second))
    change = scoring.Rates(
        rates_b.precision - rates_a.precision, rates_b.recall - rates_a.recall, rates_b.f1 - rates_a.f1
    )
    return PairedRates(
        comparison,
        scoring.estimate_rates(rates_a, samples_a),
        scoring.estimate_rates(rates_b, samples_b),
        scoring.estimate_rates(change, samples_b - samples_a),
    )
