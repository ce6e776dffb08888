"""What gold says of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.errors import UsageError
from pipelines.quality.evaluation import Evaluation, evaluate_run
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.reporting.facts.quality import Band, Quality
from pipelines.reporting.run_folder import OpenedRun
from pipelines.store.asked_schemas import read_schemas


def read_quality(
    run: OpenedRun, gold: str
) -> tuple[Quality | None, Mapping[str, float], Sequence[GoldProduct], list[str]]:
    """The scores of the run, F1 by category, the gold products, and notes.

    A run that is not finished may not have come to any labelled product yet, and rows without an id that were
    dead-lettered cannot be told from each other: then there are no scores, and a note.
    Raises `UsageError` if the gold file is none, or does not belong to a finished run.
    """
    products = read_gold(gold, read_schemas(run.folder))
    uri, is_finished, totals = run.folder.uri, run.is_finished, run.status.totals
    try:
        evaluation = evaluate_run(uri, gold)
    except UsageError as error:
        if totals.rows and not totals.products:
            return None, {}, products, ["Not scored: all rows are dead-lettered."]
        if is_finished:
            raise
        return None, {}, products, [f"Not scored yet: {error}."]
    by_category = {score.category: score.rates.f1 for score in evaluation.exact.by_category}
    unfinished = [] if is_finished else [f"{uri} is not finished (it has no manifest.json yet)"]
    notes = [f"{note}." for note in evaluation.notes if note not in unfinished]
    return _quality(evaluation), by_category, products, notes


def _quality(evaluation: Evaluation) -> Quality:
    exact = evaluation.exact
    return Quality(
        gold=evaluation.gold,
        num_products=evaluation.num_products,
        num_labels=exact.counts.num_labels,
        precision=exact.micro.precision,
        recall=exact.micro.recall,
        f1=exact.micro.f1,
        hallucination_rate=exact.hallucination_rate,
        bands=tuple(Band(band.low, band.high, band.num_values, band.num_right) for band in evaluation.by_probability),
    )
