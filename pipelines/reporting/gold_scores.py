"""Gold scores of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.errors import UsageError
from pipelines.quality.evaluation import Evaluation, evaluate_run
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.scoring import Counts
from pipelines.reporting.facts.quality import Band, ReportQuality
from pipelines.runs.run import Run


@dataclass(frozen=True, slots=True)
class GoldScores:
    """Scores of a run; empty without gold, or if nothing could be scored.

    Attributes:
        products: all labelled products.
        by_category: exact-match F1; `by_attribute`: label counts of each (category, attribute).
        notes: caveats about the scores.
    """

    quality: ReportQuality | None = None
    products: Sequence[GoldProduct] = ()
    by_category: Mapping[str, float] = field(default_factory=dict)
    by_attribute: Mapping[tuple[str, str], Counts] = field(default_factory=dict)
    notes: Sequence[str] = ()


def read_gold_scores(run: Run, gold: str) -> GoldScores:
    """Score the run against gold.

    Returns no scores, and a note, in two cases. An unfinished run may not have reached any labelled product yet.
    Dead-lettered rows without an id cannot be told apart.

    Raises `UsageError` if the gold file is not one, or does not belong to a finished run.
    """
    products = read_gold(gold, run.schemas)
    uri, is_finished, totals = run.folder.uri, run.is_finished, run.status.totals
    try:
        evaluation = evaluate_run(uri, gold)
    except UsageError as error:
        if totals.rows and not totals.products:
            return GoldScores(products=products, notes=["Not scored: all rows are dead-lettered."])
        if is_finished:
            raise
        return GoldScores(products=products, notes=[f"Not scored yet: {error}."])
    unfinished = [] if is_finished else [f"{uri} is not finished (it has no manifest.json yet)"]
    return GoldScores(
        quality=_quality(evaluation),
        products=products,
        by_category={score.category: score.rates.f1 for score in evaluation.exact.by_category},
        by_attribute={(score.category, score.attribute): score.counts for score in evaluation.exact.by_attribute},
        notes=[f"{note}." for note in evaluation.notes if note not in unfinished],
    )


def _quality(evaluation: Evaluation) -> ReportQuality:
    exact = evaluation.exact
    of_probability = evaluation.reliability_of_probability
    return ReportQuality(
        gold=evaluation.gold,
        num_products=evaluation.num_products,
        num_labels=exact.counts.num_labels,
        precision=exact.micro.precision,
        recall=exact.micro.recall,
        f1=exact.micro.f1,
        hallucination_rate=exact.hallucination_rate,
        bands=tuple(Band(band.low, band.high, band.num_values, band.num_right) for band in evaluation.by_probability),
        reliability=evaluation.reliability or of_probability,
        reliability_of="probability" if evaluation.reliability is None else "confidence",
        ece_of_probability=of_probability.ece if of_probability is not None else None,
    )
