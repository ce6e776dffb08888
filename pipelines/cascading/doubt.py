"""Which answers a larger model is asked for again."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hpd_core import RecordResult, Value

ALL = 1.0
"""As the threshold: every answer is asked for again."""


def certainty(value: Value, confidence: float | None) -> float:
    """How sure an answer is, from 0 to 1: its confidence, or the model's own probability where that is not known.

    What is no answer (cut, no valid value) has none, whatever its tokens' probability.
    """
    if value.status in ("truncated", "invalid", "error"):
        return 0.0
    if confidence is not None:
        return confidence
    if value.probability is not None:
        return value.probability
    return math.exp(value.num_tokens * value.logprob_mean) if value.logprob_mean is not None else 0.0


def is_doubtful(sure: float, below: float) -> bool:
    """Whether an answer of that certainty is asked for again."""
    return sure < below or below >= ALL


def doubtful(result: RecordResult, confidences: Mapping[str, float | None], below: float) -> dict[str, float | None]:
    """The attributes to be asked for again, with the confidence of the answer that each has.

    Args:
        confidences: by attribute; None, and those that are missing, are not known.
    """
    return {
        name: confidences.get(name)
        for name, value in result.values.items()
        if is_doubtful(certainty(value, confidences.get(name)), below)
    }
