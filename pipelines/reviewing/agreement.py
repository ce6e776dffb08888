"""Agreement of reviewers who judged the same answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from pipelines.reviewing.corrections import latest, same_answer
from pipelines.reviewing.verdicts import ReviewVerdict


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """Agreement over all pairs of reviewers of an answer.

    Attributes:
        pairs: number of reviewer pairs with the same answer judged (three reviewers of one answer are three pairs).
        same: number of pairs with the same right answer.
        kappa: Cohen's kappa on whether the model is right: 1 full agreement, 0 chance agreement. None without pairs, or
            if all verdicts are the same.
    """

    pairs: int
    same: int
    kappa: float | None

    @property
    def share(self) -> float | None:
        """Share of pairs that agree; None without pairs."""
        return self.same / self.pairs if self.pairs else None


def agreement(verdicts: Iterable[ReviewVerdict]) -> ReviewerAgreement:
    """Compute the agreement from verdicts in order, without undone ones."""
    same = 0
    judged: Counter[tuple[bool, bool]] = Counter()
    for by_reviewer in latest(verdicts).values():
        # By name: whoever comes first in a pair is the same one every time.
        for first, second in combinations([by_reviewer[name] for name in sorted(by_reviewer)], 2):
            same += same_answer(first.answer, second.answer)
            judged[_finds_right(first), _finds_right(second)] += 1
    return ReviewerAgreement(judged.total(), same, _kappa(judged))


def _finds_right(verdict: ReviewVerdict) -> bool:
    return same_answer(verdict.answer, verdict.seen)


def _kappa(judged: Counter[tuple[bool, bool]]) -> float | None:
    total = judged.total()
    if not total:
        return None
    observed = (judged[True, True] + judged[False, False]) / total
    first = (judged[True, True] + judged[True, False]) / total
    second = (judged[True, True] + judged[False, True]) / total
    expected = first * second + (1 - first) * (1 - second)
    return None if expected == 1 else (observed - expected) / (1 - expected)
