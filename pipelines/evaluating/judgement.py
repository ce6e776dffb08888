"""Result of a judge for a run: LLM-F1, counts, agreement and costs, as data."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.evaluating.asking import Judged, JudgeUsage, Undecided
from pipelines.evaluating.judged_products import JudgeAgreement, JudgedProduct
from pipelines.evaluating.questions import CLASSES, Class, count_classes, llm_estimates, llm_rates
from pipelines.quality.scoring import RateEstimates, Rates


@dataclass(frozen=True, slots=True)
class AttributeJudgement:
    """One attribute of a category; `rates` are None if none of its answers was decided."""

    category: str
    attribute: str
    classes: dict[Class, int]
    num_undecided: int
    rates: Rates | None


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """Scores by one judge.

    Attributes:
        num_products: number of products that it judged.
        num_answers: number of their answers, including undecided ones.
        num_failed: number of truncated, invalid or error answers, which the judge sees as null.
        rates: LLM-P, LLM-R and LLM-F1 with 95% intervals over products; None if nothing was decided.
        by_attribute: worst first, those without rates last.
        unanswered: ids of products that it could not be asked about, by reason.
        usage, paid: tokens and dollars of all answers, and of those paid in this session.
    """

    model: str
    num_products: int
    num_answers: int
    num_failed: int
    classes: dict[Class, int]
    rates: RateEstimates | None
    by_attribute: Sequence[AttributeJudgement]
    undecided: Sequence[Undecided]
    unanswered: dict[str, list[str]]
    usage: JudgeUsage
    paid: JudgeUsage


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of `judge_run`.

    Attributes:
        num_products: number of products that could be drawn; `num_drawn` were.
        without_text: ids of drawn products whose text cannot be read back.
        exact: agreement of the judge with exact match, if there is gold.
        verdicts: a line per product.
    """

    run: str
    gold: str | None
    num_products: int
    num_drawn: int
    seed: int
    without_text: Sequence[str]
    notes: Sequence[str]
    judge: JudgeScore
    exact: JudgeAgreement | None
    verdicts: Sequence[dict[str, Any]]

    @property
    def num_unanswered(self) -> int:
        """Number of products that the judge could not be asked about."""
        return sum(map(len, self.judge.unanswered.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dataclasses.asdict(self)

    def summary(self) -> dict[str, Any]:
        """Return plain data without the single verdicts."""
        data = self.to_dict()
        del data["verdicts"]
        return data


def judge_score(judged: Judged, products: Sequence[JudgedProduct]) -> JudgeScore:
    """Compute the counts and rates of one judge."""
    seen = [product for product in products if product.key in judged.classes]
    by_product = [_counts(judged.classes[product.key].values()) for product in seen]
    classes = count_classes(found for product in seen for found in judged.classes[product.key].values())
    return JudgeScore(
        model=judged.model,
        num_products=len(seen),
        num_answers=sum(len(product.values) for product in seen),
        num_failed=sum(len(product.failed) for product in seen),
        classes=classes,
        rates=llm_estimates(by_product),
        by_attribute=_by_attribute(judged, seen),
        undecided=[each for of_product in judged.undecided.values() for each in of_product],
        unanswered=judged.unanswered,
        usage=judged.usage,
        paid=judged.paid,
    )


def undecided_notes(score: JudgeScore) -> list[str]:
    """Return a note if more answers are undecided than decided, so that the rates cover few answers or none."""
    undecided, decided = len(score.undecided), sum(score.classes.values())
    if undecided <= decided:
        return []
    return [
        f"{score.model} left {undecided:,} of {undecided + decided:,} answers undecided: the rates are of the other "
        f"{decided:,} alone. See the reasons below; another model, or more max_output_tokens, may help"
    ]


def verdict_lines(products: Sequence[JudgedProduct], judged: Judged) -> list[dict[str, Any]]:
    """Return a line per judged product: values and classes."""
    return [
        {
            "product_id": product.product_id,
            "category": product.category,
            "source_file": product.key.source_file,
            "source_row": product.key.source_row,
            "values": product.values,
            "classes": judged.classes[product.key],
        }
        for product in products
        if product.key in judged.classes
    ]


def _counts(found: Iterable[Class | None]) -> list[int]:
    counts = count_classes(found)
    return [counts[each] for each in CLASSES]


def _by_attribute(judged: Judged, products: Sequence[JudgedProduct]) -> list[AttributeJudgement]:
    found: defaultdict[tuple[str, str], list[Class | None]] = defaultdict(list)
    for product in products:
        for name, each in judged.classes[product.key].items():
            found[product.category, name].append(each)
    scores = [
        AttributeJudgement(*pair, count_classes(classes), classes.count(None), llm_rates(_counts(classes)))
        for pair, classes in found.items()
    ]
    return sorted(scores, key=_from_the_worst)


def _from_the_worst(score: AttributeJudgement) -> tuple[bool, float, int, str, str]:
    """Return a sort key, worst first; attributes without a decided answer come last."""
    f1 = score.rates.f1 if score.rates is not None else 0.0
    return score.rates is None, f1, -sum(score.classes.values()), score.category, score.attribute
