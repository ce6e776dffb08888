"""Labels that all runs contradict with the same answer: often the label is wrong, and not the models.

A label is doubtful if all runs give the same answer and the label does not accept it. Runs of models trained on these
very labels tell most. They have memorized them and still answer otherwise. (Northcutt et al., "Confident Learning",
2021, use models that have not seen a label; these are scarcer.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError
from pipelines.quality.evaluation import judge_products
from pipelines.quality.gold import GoldProduct, GoldValue, parse_gold, read_lines
from pipelines.quality.run_answers import RunProduct, read_run
from pipelines.quality.scoring import Answer, AnswerJudgement, Comparison, predicted_items
from pipelines.store.folders import Folder
from pipelines.store.no_run import read_schemas
from pipelines.store.run_tables import published_tables

_MAX_NOTES = 5


class DoubtKind(StrEnum):
    """Kind of the runs' contradiction of a label."""

    OTHER_VALUE = "another value"
    NO_VALUE = "no value, where the label has one"
    A_VALUE = "a value, where the label says absent"


@dataclass(frozen=True, slots=True)
class DoubtfulLabel:
    """A doubtful label.

    Attributes:
        answer: answer of all runs; the first run's copy.
        sureness: lowest certainty of the runs: confidence, else the model's own probability. None if a run has neither.
    """

    product: GoldProduct
    attribute: str
    gold: GoldValue
    answer: Answer
    kind: DoubtKind
    sureness: float | None


@dataclass(frozen=True, slots=True)
class RecheckedLabels:
    """A gold file rechecked against some runs.

    Attributes:
        num_products: number of gold products in every run; only their labels are counted.
        num_silent: number of labels that a run says nothing about: not asked, given up, truncated, or answered by a
            person.
        num_right: number of labels that every run agrees with.
        num_split: number of labels that only some runs agree with.
        num_wrong: number of labels that no run agrees with, but for different answers.
        doubtful: the other labels, surest first.
        labels_of: number of labels of each (category, attribute).
        notes: caveats that a reader must know before trusting the numbers.
    """

    gold: str
    num_gold_products: int
    num_products: int
    num_silent: int
    num_right: int
    num_split: int
    num_wrong: int
    doubtful: Sequence[DoubtfulLabel]
    labels_of: Mapping[tuple[str, str], int]
    notes: Sequence[str]

    @property
    def num_labels(self) -> int:
        """Number of labels of the products in every run."""
        return sum(self.labels_of.values())

    def summary(self) -> dict[str, Any]:
        """Return the counts, as plain data for JSON."""
        return {
            "gold": self.gold,
            "num_gold_products": self.num_gold_products,
            "num_products": self.num_products,
            "num_labels": self.num_labels,
            "num_silent": self.num_silent,
            "num_right": self.num_right,
            "num_split": self.num_split,
            "num_wrong": self.num_wrong,
            "num_doubtful": len(self.doubtful),
            "kinds": {kind.name.lower(): number for kind, number in self.kinds().items()},
            "notes": list(self.notes),
        }

    def kinds(self) -> dict[DoubtKind, int]:
        """Return the number of doubtful labels of each kind."""
        counts = Counter(each.kind for each in self.doubtful)
        return {kind: counts[kind] for kind in DoubtKind}


def recheck_labels(runs: Sequence[str], gold: str, lines: Sequence[bytes] | None = None) -> RecheckedLabels:
    """Compare every label of the gold file with the runs' answers; exact, but for case and white space.

    Args:
        runs: output folders of runs, local or any fsspec URI.
        gold: a gold file in any layout of quality/gold.py.
        lines: its lines, if they were read already.

    Raises:
        UsageError: a file is missing, unreadable or invalid, a run is given twice, or no product is in all runs.
    """
    _refuse_doubled(runs)
    schemas = [schemas for run in runs if (schemas := read_schemas(published_tables(run).folder)) is not None]
    products = parse_gold(lines if lines is not None else read_lines(gold), gold, schemas)
    answers, notes = zip(*(read_run(run, products, gold) for run in runs), strict=True)
    common = sorted(set.intersection(*(set(each) for each in answers)))
    if not common:
        raise UsageError(f"no product of {gold} is in all of {', '.join(runs)}")
    judged = [judge_products(common, products, each, Comparison.FOLDED) for each in answers]
    counts: Counter[str] = Counter()
    labels: Counter[tuple[str, str]] = Counter()
    unasked: Counter[tuple[str, str, str]] = Counter()
    doubtful = []
    for judgements in zip(*judged, strict=True):
        first, rights = judgements[0], [each.outcome.is_right for each in judgements]
        index = common[first.product]
        labels[first.category, first.attribute] += 1
        unasked.update(
            (run, first.category, first.attribute)
            for run, each in zip(runs, judgements, strict=True)
            if each.answer.status == "not_asked"
        )
        if not all(_says_something(each.answer) for each in judgements):
            counts["silent"] += 1
        elif any(rights):
            counts["right" if all(rights) else "split"] += 1
        elif len({_said(each, products_of[index]) for each, products_of in zip(judgements, answers, strict=True)}) == 1:
            doubtful.append(_doubtful(products[index], judgements))
        else:
            counts["wrong"] += 1
    doubtful.sort(key=lambda each: (-(each.sureness or 0.0), each.product.row))
    return RecheckedLabels(
        gold=gold,
        num_gold_products=len(products),
        num_products=len(common),
        num_silent=counts["silent"],
        num_right=counts["right"],
        num_split=counts["split"],
        num_wrong=counts["wrong"],
        doubtful=doubtful,
        labels_of=dict(labels),
        notes=[*(note for each in notes for note in each), *_unasked_notes(unasked)],
    )


def _refuse_doubled(runs: Sequence[str]) -> None:
    """Raise `UsageError` for a run that is named twice, however it is written."""
    places: dict[str, str] = {}
    for run in runs:
        folder = Folder(run)
        place = str(Path(folder.absolute_uri).resolve()) if folder.is_local else folder.uri
        if place in places:
            raise UsageError(f"{run} is named twice (as {places[place]}): a run that agrees with itself says nothing")
        places[place] = run


def _says_something(answer: Answer) -> bool:
    """Return whether it is a model's own, complete answer."""
    return answer.status in ("value", "absent") and not answer.is_reviewed


def _said(judgement: AnswerJudgement, product: RunProduct) -> tuple[str, ...]:
    """Return the answer's items as compared with gold, sorted; empty if absent."""
    asked = product.asked.get(judgement.attribute)
    return tuple(sorted(predicted_items(judgement.answer, Comparison.FOLDED, asked)))


def _unasked_notes(unasked: Mapping[tuple[str, str, str], int]) -> Iterator[str]:
    for (run, category, attribute), number in list(unasked.items())[:_MAX_NOTES]:
        yield f"{category}: {number} labels of {attribute!r}, which {run} was not asked for"
    if len(unasked) > _MAX_NOTES:
        yield f"and {len(unasked) - _MAX_NOTES} more attributes that a run was not asked for"


def _doubtful(product: GoldProduct, judgements: Sequence[AnswerJudgement]) -> DoubtfulLabel:
    first = judgements[0]
    kind = _kind(first.gold, first.answer)
    return DoubtfulLabel(product, first.attribute, first.gold, first.answer, kind, _least_sure(judgements))


def _kind(gold: GoldValue, answer: Answer) -> DoubtKind:
    if gold.is_absent:
        return DoubtKind.A_VALUE
    return DoubtKind.OTHER_VALUE if answer.items else DoubtKind.NO_VALUE


def _least_sure(judgements: Iterable[AnswerJudgement]) -> float | None:
    sure = [
        each.answer.probability if each.answer.confidence is None else each.answer.confidence for each in judgements
    ]
    known = [each for each in sure if each is not None]
    return min(known) if len(known) == len(sure) else None
