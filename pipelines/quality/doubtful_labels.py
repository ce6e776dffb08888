"""Labels that runs contradict with one voice: often the label is wrong, and not the models.

A label is doubtful where every run answers, all of them alike, and what they say is not what the label accepts. Runs of
models that were trained on the very labels tell most: they have learned them by heart, and say something else all the
same (Northcutt et al., "Confident Learning", 2021, asks models that have not seen a label; these are scarcer).
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
from pipelines.quality.run_answers import RunFolder, RunProduct, read_run
from pipelines.quality.scoring import Answer, AnswerJudgement, Comparison, predicted_items
from pipelines.store.folders import Folder

_MAX_NOTES = 5


class DoubtKind(StrEnum):
    """What the runs say in place of a label."""

    OTHER_VALUE = "another value"
    NO_VALUE = "no value, where the label has one"
    A_VALUE = "a value, where the label says absent"


@dataclass(frozen=True, slots=True)
class DoubtfulLabel:
    """One of them.

    Attributes:
        answer: what all runs say; that of the first.
        sureness: of the run that is least sure of it: its confidence, or the model's own probability where it has none;
            None if a run has neither.
    """

    product: GoldProduct
    attribute: str
    gold: GoldValue
    answer: Answer
    kind: DoubtKind
    sureness: float | None


@dataclass(frozen=True, slots=True)
class RecheckedLabels:
    """A gold file as some runs see it.

    Attributes:
        num_products: gold products that every run has; only their labels are counted.
        num_silent: labels that a run says nothing of: it was not asked, gave up, or was cut; or a person has answered.
        num_right: labels that every run agrees with.
        num_split: those that some agree with and some do not.
        num_wrong: those that none agrees with, but not all for the same answer.
        doubtful: the others, the surest first.
        labels_of: how many labels each pair of category and attribute has.
        notes: what a reader must know before trusting the numbers.
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
        """Of the products that every run has."""
        return sum(self.labels_of.values())

    def summary(self) -> dict[str, Any]:
        """The counts, as plain data for JSON."""
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
        """How many doubtful labels there are of each kind."""
        counts = Counter(each.kind for each in self.doubtful)
        return {kind: counts[kind] for kind in DoubtKind}


def recheck_labels(runs: Sequence[str], gold: str, lines: Sequence[bytes] | None = None) -> RecheckedLabels:
    """Compares every label of the gold file with what the runs say; exact, but for case and white space.

    Args:
        runs: output folders of runs, local or any fsspec URI.
        gold: a gold file in any layout of quality/gold.py.
        lines: what stands in it, if that was read.

    Raises:
        UsageError: something is missing, unreadable or not what it should be, a run stands here twice, or no product
            is in all runs.
    """
    _refuse_doubled(runs)
    schemas = [schemas for run in runs if (schemas := RunFolder(run).schemas) is not None]
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
    """Raises `UsageError` for a run that is named twice, however it is written."""
    places: dict[str, str] = {}
    for run in runs:
        folder = Folder(run)
        place = str(Path(folder.absolute_uri).resolve()) if folder.is_local else folder.uri
        if place in places:
            raise UsageError(f"{run} is named twice (as {places[place]}): a run that agrees with itself says nothing")
        places[place] = run


def _says_something(answer: Answer) -> bool:
    """A model's own answer, and a whole one."""
    return answer.status in ("value", "absent") and not answer.is_reviewed


def _said(judgement: AnswerJudgement, product: RunProduct) -> tuple[str, ...]:
    """What an answer says, as it is compared with gold, in any order; nothing where it is absent."""
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
