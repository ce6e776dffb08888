"""Gold scores of two runs, on the gold products that both have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.comparing.examples import Right
from pipelines.errors import UsageError
from pipelines.quality import scoring
from pipelines.quality.evaluation import judge_products
from pipelines.quality.gold import read_gold
from pipelines.quality.run_answers import RowKey, read_run
from pipelines.quality.scoring import AnswerJudgement, Comparison, RateEstimates
from pipelines.runs.run import Run


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Labelled answers in which the runs differ, by which is right (exactly)."""

    category: str
    attribute: str
    a: int
    b: int
    both: int
    neither: int


@dataclass(frozen=True, slots=True)
class GoldQuality:
    """Both runs against a gold file.

    Attributes:
        num_products: number of gold products that both have; only they are scored.
        num_labels: number of their labelled attributes.
        rates: exact, then folded.
        verdicts: attributes with differing answers, most differences first.
    """

    gold: str
    num_gold_products: int
    num_products: int
    num_labels: int
    rates: Sequence[PairedRates]
    verdicts: Sequence[Verdicts]


@dataclass(frozen=True, slots=True)
class Label:
    """Gold value of an answer, as text, and which run is right."""

    gold: str
    right: Right


def compare_quality(a: Run, b: Run, gold_path: str) -> tuple[GoldQuality, dict[tuple[RowKey, str], Label]]:
    """Return the scores of both, and the labels by A's row and attribute.

    Raises `UsageError` if the gold file cannot be read or does not belong to the runs.
    """
    gold = read_gold(gold_path, a.schemas, b.schemas)
    (products_a, _), (products_b, _) = (read_run(side.uri, gold, gold_path, side.reviews) for side in (a, b))
    common = sorted(products_a.keys() & products_b.keys())
    if not common:
        raise UsageError(f"no product of {gold_path} is in both runs")
    judged = {
        comparison: (
            judge_products(common, gold, products_a, comparison),
            judge_products(common, gold, products_b, comparison),
        )
        for comparison in Comparison
    }
    exact_a, exact_b = judged[Comparison.EXACT]
    labels = {
        (products_a[common[first.product]].key, first.attribute): Label(str(first.gold), _right(first, second))
        for first, second in zip(exact_a, exact_b, strict=True)
    }
    quality = GoldQuality(
        gold=gold_path,
        num_gold_products=len(gold),
        num_products=len(common),
        num_labels=len(exact_a),
        rates=[paired_rates(each, first, second, len(common)) for each, (first, second) in judged.items()],
        verdicts=_verdicts(exact_a, exact_b),
    )
    return quality, labels


def _verdicts(first: Sequence[AnswerJudgement], second: Sequence[AnswerJudgement]) -> list[Verdicts]:
    counts: dict[tuple[str, str], Counter[Right]] = {}
    for a, b in zip(first, second, strict=True):
        if (a.answer.status, set(a.answer.items)) != (b.answer.status, set(b.answer.items)):
            counts.setdefault((a.category, a.attribute), Counter())[_right(a, b)] += 1
    return [
        Verdicts(*pair, count["a"], count["b"], count["both"], count["neither"])
        for pair, count in sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    ]


def _right(a: AnswerJudgement, b: AnswerJudgement) -> Right:
    rights: Mapping[tuple[bool, bool], Right] = {
        (True, True): "both",
        (True, False): "a",
        (False, True): "b",
        (False, False): "neither",
    }
    return rights[a.outcome.is_right, b.outcome.is_right]


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
