"""Choice of the answers that a larger model is asked again."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hpd_core import RecordResult, Value

ALL = 1.0
"""Threshold at which every answer is asked again."""

_NO_ANSWER = ("truncated", "invalid", "error")


def is_answer(status: str) -> bool:
    """Return whether the model answers: a value, or that the text states none."""
    return status not in _NO_ANSWER


def own_probability(value: Value) -> float | None:
    """Return the model's own probability of the answer, else the product of its tokens' probabilities."""
    if value.probability is not None or value.logprob_mean is None:
        return value.probability
    return math.exp(value.num_tokens * value.logprob_mean)


def sureness(status: str, confidence: float | None, probability: float | None) -> float:
    """Return how sure an answer is, from 0 to 1: its confidence, else the model's own probability.

    A failed answer (truncated, no valid value) has 0, whatever its tokens' probability.
    """
    if not is_answer(status):
        return 0.0
    return next((each for each in (confidence, probability) if each is not None), 0.0)


def certainty(value: Value, confidence: float | None) -> float:
    """Return the `sureness` of an engine's answer."""
    return sureness(value.status, confidence, own_probability(value))


def is_doubtful(sure: float, below: float) -> bool:
    """Return whether an answer of that certainty is asked again."""
    return sure < below or below >= ALL


def doubtful(result: RecordResult, confidences: Mapping[str, float | None], below: float) -> dict[str, float | None]:
    """Return the attributes to ask again, with the confidence of their current answers.

    Args:
        confidences: confidences by attribute; None or missing: unknown.
    """
    return {
        name: confidences.get(name)
        for name, value in result.values.items()
        if is_doubtful(certainty(value, confidences.get(name)), below)
    }
