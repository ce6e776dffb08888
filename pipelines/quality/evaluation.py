"""Scores of a run against gold values, with intervals, as data."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpd_core.text.near_names import NearNames
from pipelines.quality import scoring
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.run_answers import RunProduct, read_run
from pipelines.quality.scoring import (
    Answer,
    AnswerJudgement,
    AnswerOutcome,
    Comparison,
    Counts,
    RateEstimates,
    Rates,
    Reliability,
    reliability,
)
from pipelines.store.no_run import read_schemas
from pipelines.store.run_tables import published_tables

_MAX_NAMES = 5  # products or attributes named in notes


@dataclass(frozen=True, slots=True)
class AttributeScore:
    """Counts and rates of one attribute of one category."""

    category: str
    attribute: str
    counts: Counts
    rates: Rates


@dataclass(frozen=True, slots=True)
class CategoryScore:
    """Counts and (micro) rates of one category."""

    category: str
    counts: Counts
    rates: Rates


@dataclass(frozen=True, slots=True)
class Scorecard:
    """All scores of one run under one comparison."""

    comparison: Comparison
    counts: Counts
    hallucination_rate: float | None
    micro: RateEstimates
    macro: RateEstimates
    by_category: tuple[CategoryScore, ...]
    by_attribute: tuple[AttributeScore, ...]


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """Counts of attributes that the run was asked for but that have no label; neither right nor wrong.

    If a gold file labels only present values (OA-Mine), a value here is often, but not surely, made up.
    """

    num_asked: int
    num_values: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `evaluate_run`.

    Attributes:
        num_gold_products: number of products in the gold file.
        num_products: number of gold products in the run, dead-lettered ones included; only they are scored.
        dead_lettered: names of the products that the run gave up; every label of theirs counts as not answered.
        not_in_run: names of the gold products that the run never saw (`--limit`, or not finished).
        statuses: number of labelled attributes by the status of their answer.
        unlabelled: counts of answers without a label.
        reliability: reliability of the calibrated confidences of values with a label; None without any.
        reliability_of_probability: the same for the model's own probabilities.
        scores: the exact scorecard, then the folded one if it was requested.
        judgements: every labelled attribute with its outcome under the exact comparison.
        notes: caveats that a reader must know before trusting the numbers.
    """

    run: str
    gold: str
    num_gold_products: int
    num_products: int
    dead_lettered: tuple[str, ...]
    not_in_run: tuple[str, ...]
    statuses: Mapping[str, int]
    unlabelled: Unlabelled
    reliability: Reliability | None
    reliability_of_probability: Reliability | None
    scores: tuple[Scorecard, ...]
    notes: tuple[str, ...]
    judgements: tuple[AnswerJudgement, ...] = field(repr=False)

    @property
    def exact(self) -> Scorecard:
        """Scorecard by ExtractGPT's rules."""
        return self.scores[0]

    def summary(self) -> dict[str, Any]:
        """Return everything but the single judgements, as plain data for JSON."""
        data = dataclasses.asdict(dataclasses.replace(self, judgements=()))
        del data["judgements"]
        return data


def evaluate_run(run: str, gold: str, *, comparison: Comparison = Comparison.EXACT) -> Evaluation:
    """Score the run in the folder `run` against the gold file `gold`.

    Args:
        run: output folder of a run, local or any fsspec URI.
        gold: gold file in any layout of quality/gold.py.
        comparison: "exact" scores exactly; "folded" adds a second, folded scorecard.

    Raises:
        UsageError: a file or folder is missing, unreadable or invalid, or the gold file does not belong to the run.
    """
    gold_products = read_gold(gold, read_schemas(published_tables(run).folder))
    products, notes = read_run(run, gold_products, gold)
    comparisons = list(dict.fromkeys([Comparison.EXACT, comparison]))
    evaluated = sorted(products)
    judged = {each: judge_products(evaluated, gold_products, products, each) for each in comparisons}
    not_in_run = tuple(product.name for index, product in enumerate(gold_products) if index not in products)
    if not_in_run:
        notes.insert(0, _missing_note(run, len(gold_products), not_in_run))
    exact = judged[Comparison.EXACT]
    notes += _misspelled_notes(exact, [products[index] for index in evaluated])
    return Evaluation(
        run=run,
        gold=gold,
        num_gold_products=len(gold_products),
        num_products=len(evaluated),
        dead_lettered=tuple(gold_products[index].name for index in evaluated if products[index].dead_lettered),
        not_in_run=not_in_run,
        statuses=dict(Counter(judgement.answer.status for judgement in exact).most_common()),
        unlabelled=_count_unlabelled(evaluated, gold_products, products),
        reliability=_reliability(exact, lambda answer: answer.confidence),
        reliability_of_probability=_reliability(exact, lambda answer: answer.probability),
        scores=tuple(_scorecard(each, judgements, len(evaluated)) for each, judgements in judged.items()),
        notes=tuple(notes),
        judgements=tuple(exact),
    )


def _missing_note(run: str, num_gold: int, missing: Sequence[str]) -> str:
    named = ", ".join(missing[:_MAX_NAMES]) + (", ..." if len(missing) > _MAX_NAMES else "")
    return (
        f"{len(missing)} of {num_gold} gold products are not in {run} (run with --limit, or not finished): "
        f"{named}. Only the {num_gold - len(missing)} products that the run has are scored"
    )


def _misspelled_notes(judgements: Sequence[AnswerJudgement], products: Sequence[RunProduct]) -> Iterator[str]:
    """Yield notes on labelled attributes that the run was not asked for, if a similar asked name has no label."""
    asked: dict[str, set[str]] = defaultdict(set)
    for judgement in judgements:
        asked[judgement.category].update(products[judgement.product].answers)
    labels = Counter((judgement.category, judgement.attribute) for judgement in judgements)
    found = []
    for (category, attribute), count in labels.most_common():
        if attribute in asked[category]:
            continue
        unlabelled = [name for name in asked[category] if (category, name) not in labels]
        if hint := NearNames(unlabelled).hint(attribute):
            found.append(f"{category}: {count} labels of {attribute!r}, which the run was not asked for; {hint}")
    yield from found[:_MAX_NAMES]
    if len(found) > _MAX_NAMES:
        yield f"and {len(found) - _MAX_NAMES} more such attributes"


def judge_products(
    indexes: Sequence[int],
    gold: Sequence[GoldProduct],
    products: Mapping[int, RunProduct],
    comparison: Comparison,
) -> list[AnswerJudgement]:
    """Judge every labelled attribute of the products with these indexes in `gold`, in this order."""
    judgements = []
    for position, index in enumerate(indexes):
        for attribute, value in gold[index].values.items():
            answer = products[index].answer(attribute)
            asked = products[index].asked.get(attribute)
            outcome = scoring.judge(value, answer, comparison, asked, gold[index].fields)
            judgements.append(AnswerJudgement(position, gold[index].category, attribute, value, answer, outcome))
    return judgements


def _count_unlabelled(
    indexes: Sequence[int], gold: Sequence[GoldProduct], products: Mapping[int, RunProduct]
) -> Unlabelled:
    statuses = [
        answer.status
        for index in indexes
        for attribute, answer in products[index].answers.items()
        if attribute not in gold[index].values
    ]
    return Unlabelled(len(statuses), statuses.count("value"))


def _reliability(judgements: Sequence[AnswerJudgement], sure: Callable[[Answer], float | None]) -> Reliability | None:
    values = [each for each in judgements if each.answer.status == "value"]
    known = [(sure(each.answer), each.outcome is AnswerOutcome.VC) for each in values]
    return reliability((probability, is_right) for probability, is_right in known if probability is not None)


def _scorecard(comparison: Comparison, judgements: Sequence[AnswerJudgement], num_products: int) -> Scorecard:
    by_pair = scoring.count_by_pair(judgements)
    by_category: dict[str, Counts] = {}
    for (category, _), counts in by_pair.items():
        by_category[category] = by_category.get(category, Counts()) + counts
    total = sum(by_pair.values(), Counts())
    resamples = scoring.bootstrap(judgements, num_products)
    return Scorecard(
        comparison=comparison,
        counts=total,
        hallucination_rate=total.hallucination_rate,
        micro=scoring.estimate_rates(total.rates, resamples.micro),
        macro=scoring.estimate_rates(scoring.macro_rates(by_pair.values()), resamples.macro),
        by_category=tuple(CategoryScore(name, counts, counts.rates) for name, counts in by_category.items()),
        by_attribute=tuple(AttributeScore(*pair, counts, counts.rates) for pair, counts in by_pair.items()),
    )
