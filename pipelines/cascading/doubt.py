"""Which answers a larger model is asked for again."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hpd_core import RecordResult, Value

ALL = 1.0
"""As the threshold: every answer is asked for again."""

_NO_ANSWER = ("truncated", "invalid", "error")


def is_answer(status: str) -> bool:
    """Whether the model says something: a value, or that the text states none."""
    return status not in _NO_ANSWER


def own_probability(value: Value) -> float | None:
    """The model's own probability of the answer, the product of its tokens' where it has no other."""
    if value.probability is not None or value.logprob_mean is None:
        return value.probability
    return math.exp(value.num_tokens * value.logprob_mean)


def sureness(status: str, confidence: float | None, probability: float | None) -> float:
    """How sure an answer is, from 0 to 1: its confidence, or the model's own probability where that is not known.

    What is no answer (cut, no valid value) has none, whatever its tokens' probability.
    """
    if not is_answer(status):
        return 0.0
    return next((each for each in (confidence, probability) if each is not None), 0.0)


def certainty(value: Value, confidence: float | None) -> float:
    """The `sureness` of an engine's answer."""
    return sureness(value.status, confidence, own_probability(value))


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
