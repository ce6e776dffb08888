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

LEVEL = 0.05
"""Probability that a promise does not hold."""

_HALVINGS = 60
_NEGLIGIBLE = 1e-18


class Taken(NamedTuple):
    """Number of labelled answers at or above a threshold, and how many of them are right."""

    num: int
    right: int


def tail(num: int, right: int, precision: float) -> float:
    """Return the probability that at least `right` of `num` are right, if each is with probability `precision`."""
    if right <= 0:
        return 1.0
    if precision <= 0:
        return 0.0
    if precision >= 1:
        return 1.0
    if right > num * precision:
        return min(1.0, _sum_away(num, right, precision))
    # Below the mean the other side is summed, from its largest term on: the first terms of this one may be 0 as floats.
    return max(0.0, 1 - _sum_away(num, num - right + 1, 1 - precision))


def _sum_away(num: int, right: int, precision: float) -> float:
    """Compute `tail` for `right` at or above the mean, where the terms fall from the first on."""
    log_ways = math.lgamma(num + 1) - math.lgamma(right + 1) - math.lgamma(num - right + 1)
    term = math.exp(log_ways + right * math.log(precision) + (num - right) * math.log1p(-precision))
    total, odds = term, precision / (1 - precision)
    for count in range(right, num):
        term *= (num - count) / (count + 1) * odds
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return total


def lower_bound(num: int, right: int, level: float = LEVEL) -> float:
    """Return the one-sided lower bound of Clopper and Pearson: the lowest precision that `level` does not rule out."""
    if right == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(num, right, middle) <= level else (low, middle)
    return low


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
