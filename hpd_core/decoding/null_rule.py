"""When an answer that is chosen among members is null (decoding/member_search.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_HALF = 0.5
_LEAST = 1e-300


class KnownMasses(NamedTuple):
    """Of v values, float64 [v]: what is known of their answers so far.

    `null` is a probability, and `most_null` what it is if all that waits is null's. The others are in `units` of one:
    the best member's mass, that of all members with all that waits, and that of what waits alone, of which nobody knows
    yet whose it is, or whether it is anybody's.
    """

    null: FloatArray
    most_null: FloatArray
    best: FloatArray
    every: FloatArray
    waiting: FloatArray
    units: FloatArray


class NullVerdicts(NamedTuple):
    """Of v values.

    Attributes:
        is_null, is_value: bool [v], that they are so, whoever has the mass that waits; neither is known as yet where
            both are false.
        room: float64 [v], of the mass that waits, about how much may stay unknown for it to be known.
    """

    is_null: npt.NDArray[np.bool_]
    is_value: npt.NDArray[np.bool_]
    room: FloatArray


@dataclass(frozen=True, slots=True)
class NullRule:
    """Null where the model gives null a half of its probability; with a threshold, where no member's share comes up to
    it (`EngineConfig.answer_threshold`)."""

    threshold: float | None = None

    def judge(self, known: KnownMasses, can_be_null: npt.NDArray[np.bool_]) -> NullVerdicts:
        """`can_be_null`: bool [v], whether null is among what the answers are chosen from."""
        if self.threshold is None:
            return _by_half(known)
        found = _by_share(known, self.threshold)
        return NullVerdicts(
            found.is_null & can_be_null, found.is_value | ~can_be_null, np.where(can_be_null, found.room, np.inf)
        )


BY_HALF = NullRule()


def has_a_half(null: FloatArray) -> npt.NDArray[np.bool_]:
    """bool [v], whether null's probability does without a threshold, and where there is no room to judge by one."""
    found: npt.NDArray[np.bool_] = null >= _HALF
    return found


def _by_half(known: KnownMasses) -> NullVerdicts:
    return NullVerdicts(
        has_a_half(known.null), known.most_null < _HALF, np.maximum(0, _HALF - known.null) / known.units
    )


def _by_share(known: KnownMasses, threshold: float) -> NullVerdicts:
    """The best member's share is best (1 - null) / every. It is least where what waits is null's and another member's
    at once, and most where it is its own; another member's can be no more than that."""
    null, most_null, best, every, waiting, units = known
    is_value = best * (1 - most_null) >= threshold * every
    is_null = ((best + waiting) * (1 - null) < threshold * every) | (every <= 0)
    # How far the share is from the threshold with nothing waiting, and how much of that a unit that waits takes away.
    ahead = best * (1 - null) - threshold * (every - waiting)
    to_value, to_null = threshold + units * best, np.maximum(1 - null - threshold, _LEAST)
    return NullVerdicts(is_null, is_value, np.where(ahead >= 0, ahead / to_value, -ahead / to_null))
