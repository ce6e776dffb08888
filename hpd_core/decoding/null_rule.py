"""Rules for when an answer that is chosen among members is null (decoding/member_search.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_HALF = 0.5
_LEAST = 1e-300


class KnownMasses(NamedTuple):
    """Bounds on the answers of v values so far, float64 [v] each.

    `null` is a probability, and `most_null` its maximum, if all waiting mass is null's. The others are in `units` of
    probability: the best member's mass, that of all members with all waiting mass, and the waiting mass alone. It is
    not known yet which member the waiting mass belongs to, if any.
    """

    null: FloatArray
    most_null: FloatArray
    best: FloatArray
    every: FloatArray
    waiting: FloatArray
    units: FloatArray


class NullVerdicts(NamedTuple):
    """Verdicts on v values.

    Attributes:
        is_null, is_value: bool [v], whether that is certain, whichever way the waiting mass falls; both false: unknown.
        room: float64 [v], about how much of the waiting mass may stay unknown for a certain verdict.
    """

    is_null: npt.NDArray[np.bool_]
    is_value: npt.NDArray[np.bool_]
    room: FloatArray


@dataclass(frozen=True, slots=True)
class NullRule:
    """Rule for null: null has at least half of the probability; with a threshold, no member's share reaches it.

    `EngineConfig.answer_threshold` sets the threshold."""

    threshold: float | None = None

    def judge(self, known: KnownMasses, can_be_null: npt.NDArray[np.bool_]) -> NullVerdicts:
        """Judge v values; `can_be_null`: bool [v], whether null is among the possible answers."""
        if self.threshold is None:
            return _by_half(known)
        found = _by_share(known, self.threshold)
        return NullVerdicts(
            found.is_null & can_be_null, found.is_value | ~can_be_null, np.where(can_be_null, found.room, np.inf)
        )


BY_HALF = NullRule()


def has_a_half(null: FloatArray) -> npt.NDArray[np.bool_]:
    """Return whether null wins without a threshold, bool [v]. Used with one, too, if the budget is spent."""
    found: npt.NDArray[np.bool_] = null >= _HALF
    return found


def _by_half(known: KnownMasses) -> NullVerdicts:
    return NullVerdicts(
        has_a_half(known.null), known.most_null < _HALF, np.maximum(0, _HALF - known.null) / known.units
    )


def _by_share(known: KnownMasses, threshold: float) -> NullVerdicts:
    """Judge by the best member's share, best (1 - null) / every.

    It is least if the waiting mass is null's and another member's at once, and most if it is its own. Another member's
    share cannot exceed that."""
    null, most_null, best, every, waiting, units = known
    is_value = best * (1 - most_null) >= threshold * every
    is_null = ((best + waiting) * (1 - null) < threshold * every) | (every <= 0)
    # Distance of the share from the threshold with nothing waiting, and how much of it a unit of waiting mass takes.
    ahead = best * (1 - null) - threshold * (every - waiting)
    to_value, to_null = threshold + units * best, np.maximum(1 - null - threshold, _LEAST)
    return NullVerdicts(is_null, is_value, np.where(ahead >= 0, ahead / to_value, -ahead / to_null))
