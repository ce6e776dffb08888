"""Monotone curves from a score to the probability that the answer is right."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Platt:
    """A logistic curve.

    Attributes:
        slope: at least 0.
    """

    slope: float
    intercept: float
    kind: ClassVar[str] = "platt"

    def of(self, score: float) -> float:
        """Return the probability at a score."""
        odds = self.slope * score + self.intercept
        # Written so that neither side overflows.
        return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"kind": self.kind, "slope": self.slope, "intercept": self.intercept}


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising curve through points, straight in between and level outside.

    Attributes:
        scores: ascending, each once.
        probabilities: ascending.
    """

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    kind: ClassVar[str] = "isotonic"

    def of(self, score: float) -> float:
        """Return the probability at a score."""
        place = bisect_right(self.scores, score)
        if place == 0:
            return self.probabilities[0]
        if place == len(self.scores):
            return self.probabilities[-1]
        low, high = self.probabilities[place - 1], self.probabilities[place]
        below, above = self.scores[place - 1], self.scores[place]
        return min(high, low + (high - low) * ((score - below) / (above - below)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"kind": self.kind, "scores": list(self.scores), "probabilities": list(self.probabilities)}


Curve = Platt | Isotonic


def curve_from_dict(data: Mapping[str, Any]) -> Curve:
    """Invert `to_dict`. Raises `KeyError`, `TypeError` or `ValueError` for data that are not a curve's."""
    if data["kind"] == Platt.kind:
        slope, intercept = float(data["slope"]), float(data["intercept"])
        if not (slope >= 0 and math.isfinite(slope) and math.isfinite(intercept)):
            raise ValueError("a curve has to rise")
        return Platt(slope, intercept)
    if data["kind"] != Isotonic.kind:
        raise ValueError(f"there is no kind of curve {data['kind']!r}")
    scores, probabilities = (tuple(map(float, data[name])) for name in ("scores", "probabilities"))
    rises = sorted(set(scores)) == list(scores) and sorted(probabilities) == list(probabilities)
    if not all(map(math.isfinite, (*scores, *probabilities))):
        raise ValueError("a curve's points are finite")
    if not scores or len(scores) != len(probabilities) or not rises:
        raise ValueError("a curve has to rise")
    if not 0 <= probabilities[0] <= probabilities[-1] <= 1:
        raise ValueError("a probability is between 0 and 1")
    return Isotonic(scores, probabilities)
