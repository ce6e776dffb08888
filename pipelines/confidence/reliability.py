"""Reliability of probabilities: of the values said to be right with 0.8, are 80% right?"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

_NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Values with a probability in [low, high), or [low, 1]."""

    low: float
    high: float
    count: int
    mean_confidence: float
    share_right: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability curve.

    Attributes:
        ece: expected calibration error: mean distance between share of right values and mean probability, over the
            values.
        bins: ten of equal width; those without values are left out.
    """

    ece: float
    bins: tuple[ReliabilityBin, ...]


def reliability(pairs: Iterable[tuple[float, bool]]) -> Reliability | None:
    """Compute the curve from (probability, is right) pairs; None without pairs."""
    known = list(pairs)
    if not known:
        return None
    bins = []
    edges = [number / _NUM_BINS for number in range(_NUM_BINS + 1)]
    for low, high in itertools.pairwise(edges):
        inside = [pair for pair in known if low <= pair[0] and (pair[0] < high or high == 1)]
        if inside:
            mean = sum(probability for probability, _ in inside) / len(inside)
            right = sum(is_right for _, is_right in inside) / len(inside)
            bins.append(ReliabilityBin(low, high, len(inside), mean, right))
    ece = sum(each.count * abs(each.mean_confidence - each.share_right) for each in bins) / len(known)
    return Reliability(ece, tuple(bins))
