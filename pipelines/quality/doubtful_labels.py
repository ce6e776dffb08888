"""Labels that runs contradict with one voice: often the label is wrong, and not the models.

A label is doubtful where every run answers, all of them alike, and what they say is not what the label accepts. Runs of
models that were trained on the very labels tell most: they have learned them by heart, and say something else all the
same (Northcutt et al., "Confident Learning", 2021, asks models that have not seen a label; these are scarcer).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipelines.errors import UsageError
from pipelines.quality.evaluation import judge_products
from pipelines.quality.gold import GoldProduct, GoldValue, parse_gold, read_lines
from pipelines.quality.run_answers import RunFolder, read_run
from pipelines.quality.scoring import Answer, Comparison, Judgement, Outcome, fold

_RIGHT = (Outcome.NN, Outcome.VC)


class Kind(StrEnum):
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
    kind: Kind
    sureness: float | None


@dataclass(frozen=True, slots=True)
class RecheckedLabels:
    """A gold file as some runs see it.

    Attributes:
        num_products: gold products that every run has; only their labels are counted.
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
            "num_right": self.num_right,
            "num_split": self.num_split,
            "num_wrong": self.num_wrong,
            "num_doubtful": len(self.doubtful),
            "kinds": {kind.name.lower(): number for kind, number in self.kinds().items()},
            "notes": list(self.notes),
        }

    def kinds(self) -> dict[Kind, int]:
        """How many doubtful labels there are of each kind."""
        counts = Counter(each.kind for each in self.doubtful)
        return {kind: counts[kind] for kind in Kind}


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
    if doubled := [run for run, count in Counter(each.rstrip("/") for each in runs).items() if count > 1]:
        raise UsageError(f"{doubled[0]} is named twice: a run that agrees with itself says nothing")
    schemas = [schemas for run in runs if (schemas := RunFolder(run).schemas) is not None]
    products = parse_gold(lines if lines is not None else read_lines(gold), gold, schemas)
    answers, notes = zip(*(read_run(run, products, gold) for run in runs), strict=True)
    common = sorted(set.intersection(*(set(each) for each in answers)))
    if not common:
        raise UsageError(f"no product of {gold} is in all of {', '.join(runs)}")
    judged = [judge_products(common, products, each, Comparison.FOLDED) for each in answers]
    counts: Counter[str] = Counter()
    labels: Counter[tuple[str, str]] = Counter()
    doubtful = []
    for judgements in zip(*judged, strict=True):
        rights = [each.outcome in _RIGHT for each in judgements]
        labels[judgements[0].category, judgements[0].attribute] += 1
        if any(rights):
            counts["right" if all(rights) else "split"] += 1
        elif _are_alike([each.answer for each in judgements]):
            doubtful.append(_doubtful(products[common[judgements[0].product]], judgements))
        else:
            counts["wrong"] += 1
    doubtful.sort(key=lambda each: (-(each.sureness or 0.0), each.product.row))
    return RecheckedLabels(
        gold=gold,
        num_gold_products=len(products),
        num_products=len(common),
        num_right=counts["right"],
        num_split=counts["split"],
        num_wrong=counts["wrong"],
        doubtful=doubtful,
        labels_of=dict(labels),
        notes=[note for each in notes for note in each],
    )


def _are_alike(answers: Sequence[Answer]) -> bool:
    """Whether all say the same; what is truncated, invalid or was given up says nothing."""
    said = {(each.status, tuple(sorted(fold(item) for item in each.items))) for each in answers}
    return len(said) == 1 and answers[0].status in ("value", "absent")


def _doubtful(product: GoldProduct, judgements: Sequence[Judgement]) -> DoubtfulLabel:
    first = judgements[0]
    kind = _kind(first.gold, first.answer)
    return DoubtfulLabel(product, first.attribute, first.gold, first.answer, kind, _least_sure(judgements))


def _kind(gold: GoldValue, answer: Answer) -> Kind:
    if gold.is_absent:
        return Kind.A_VALUE
    return Kind.OTHER_VALUE if answer.items else Kind.NO_VALUE


def _least_sure(judgements: Iterable[Judgement]) -> float | None:
    sure = [
        each.answer.probability if each.answer.confidence is None else each.answer.confidence for each in judgements
    ]
    known = [each for each in sure if each is not None]
    return min(known) if len(known) == len(sure) else None


def without_doubtful(lines: Sequence[bytes], doubtful: Iterable[DoubtfulLabel]) -> list[bytes]:
    """The lines of the gold file with none of these labels.

    What each label was stands in its line under "doubtful", which no command reads. Other lines are as they were; so is
    the number of each, by which products without ids are known.
    """
    by_row: defaultdict[int, list[DoubtfulLabel]] = defaultdict(list)
    for each in doubtful:
        by_row[each.product.row].append(each)
    return [_without(line, by_row[row]) if row in by_row else line for row, line in enumerate(lines)]


def _without(line: bytes, doubtful: Sequence[DoubtfulLabel]) -> bytes:
    entry = json.loads(line)
    product = doubtful[0].product
    gone = {each.attribute for each in doubtful}
    called = gone | {name for name, asked in product.renamed.items() if asked in gone}
    if "target_scores" in entry:
        entry["target_scores"] = {name: each for name, each in entry["target_scores"].items() if name not in called}
    elif "attributes" in entry:
        entry["attributes"] = [each for each in entry["attributes"] if each["key"] not in called]
    else:
        # Written anew, by the names that were asked for: an object may be one null for all that is in it.
        entry["values"] = {name: _as_written(gold) for name, gold in product.values.items() if name not in gone}
        if product.corrected is not None:
            entry["review"]["corrected"] = sorted(product.corrected - gone)
    entry["doubtful"] = {**_earlier(entry), **{each.attribute: _note(each) for each in doubtful}}
    return json.dumps(entry, ensure_ascii=False).encode()


def _earlier(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What was taken out of the line before."""
    found = entry.get("doubtful")
    return found if isinstance(found, dict) else {}


def _as_written(gold: GoldValue) -> list[Any] | None:
    if gold.is_absent:
        return None
    return list(gold.items[0]) if len(gold.items) == 1 else [list(forms) for forms in gold.items]


def _note(each: DoubtfulLabel) -> dict[str, Any]:
    return {"label": _as_written(each.gold), "answer": list(each.answer.items) or None, "sureness": each.sureness}
