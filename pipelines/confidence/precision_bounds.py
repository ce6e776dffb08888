"""Which threshold keeps a promise of precision: exact tests of counts, at several thresholds without losing the level.

Taken above a threshold are `num` labelled answers, `right` of them right. The promise "at least `precision` are right"
is made where fewer than that would be seen to do so well in at most 5 of 100 draws, which is when the one-sided 95%
lower bound of Clopper and Pearson is at least `precision`.

Several thresholds are looked at. The 5% are shared equally by those that could pass at all (which their numbers decide,
never who was right), from the highest down, and one that passes hands its share on to the next: the fallback procedure
of Wiens and Dmitrienko, by which the chance that any wrong promise passes stays below 5%.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.05
"""The chance that a promise does not hold."""

_HALVINGS = 60
_NEGLIGIBLE = 1e-18


class Taken(NamedTuple):
    """Labelled answers at or above a threshold, and how many of them are right."""

    num: int
    right: int


def tail(num: int, right: int, precision: float) -> float:
    """The chance that at least `right` of `num` are right if each is with the probability `precision`."""
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
    """As `tail`, for `right` at or above the mean: the terms fall from the first on."""
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
    """The one-sided lower bound of Clopper and Pearson: the least precision that `level` does not rule out."""
    if right == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(num, right, middle) <= level else (low, middle)
    return low


def upper_bound(num: int, right: int, level: float = LEVEL) -> float:
    """The one-sided upper bound of Clopper and Pearson."""
    return 1 - lower_bound(num, num - right, level)


def enough(precision: float, level: float = LEVEL) -> int:
    """How many answers, all of them right, it takes to promise `precision`, which is below 1."""
    return math.ceil(math.log(level) / math.log(precision) - 1e-12)


def lowest_passing(steps: Sequence[Taken], precision: float, level: float = LEVEL) -> int | None:
    """The place of the lowest threshold at which `precision` can be promised; None if there is none.

    Args:
        steps: by threshold, from the highest to the lowest; each includes those above it.
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
