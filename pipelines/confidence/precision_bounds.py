"""Choice of the threshold that keeps a promise of precision: exact tests of counts, keeping the level over thresholds.

Above a threshold are `num` labelled answers, `right` of them right. The promise "at least `precision` are right" is
made if a lower precision would do so well in at most 5 of 100 draws. That is the case if the one-sided 95% lower bound
of Clopper and Pearson is at least `precision`.

Several thresholds are tested. Those that could pass at all (by their numbers, never by the labels) share the 5%
equally, from the highest down. One that passes hands its share on to the next: the fallback procedure of Wiens and
Dmitrienko. It keeps the chance that any wrong promise passes below 5%.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import betainc, betaincinv

LEVEL = 0.05
"""Probability that a promise does not hold."""


class Taken(NamedTuple):
    """Number of labelled answers at or above a threshold, and how many of them are right."""

    num: int
    right: int


def tail(num: int, right: int, precision: float) -> float:
    """Return the probability that at least `right` of `num` are right, if each is with probability `precision`."""
    return float(betainc(right, num - right + 1, precision)) if right > 0 else 1.0


def lower_bound(num: int, right: int, level: float = LEVEL) -> float:
    """Return the one-sided lower bound of Clopper and Pearson: the lowest precision that `level` does not rule out."""
    return float(betaincinv(right, num - right + 1, level)) if right > 0 else 0.0


def upper_bound(num: int, right: int, level: float = LEVEL) -> float:
    """Return the one-sided upper bound of Clopper and Pearson."""
    return 1 - lower_bound(num, num - right, level)


def enough(precision: float, level: float = LEVEL) -> int:
    """Return how many answers, all of them right, are needed to promise `precision`, which is below 1."""
    return math.ceil(math.log(level) / math.log(precision) - 1e-12)


def lowest_passing(steps: Sequence[Taken], precision: float, level: float = LEVEL) -> int | None:
    """Return the index of the lowest threshold at which `precision` can be promised; None if there is none.

    Args:
        steps: counts by threshold, from the highest to the lowest; each includes those above it.
    """
    tested = [
        place
        for place, step in enumerate(steps)
        if tail(step.num, step.num, precision) <= level and (place == 0 or step.num > steps[place - 1].num)
    ]
    passing, handed_on = None, 0.0
    for place in tested:
        share = handed_on + level / len(tested)
        passes = tail(*steps[place], precision) <= share
        handed_on = share if passes else 0.0
        passing = place if passes else passing
    return passing
