"""Answers of two models for the same product: which are asked again, and which stand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpd_core import RecordResult, Value
from pipelines.config.extraction import JobConfig


@dataclass(frozen=True, slots=True)
class Standing:
    """The merged answers of a record.

    Attributes:
        result: for each attribute the valid answer of the last model asked.
        asked: attributes that the larger model was asked, with the confidence of their first answer; None: unknown.
        replaced: attributes with the larger model's answer, with the answer it replaced; None if the first model failed
            on the record.
        seconds: the larger model's engine seconds for this record alone; None without such a model.
    """

    result: RecordResult
    asked: Mapping[str, float | None] = field(default_factory=dict)
    replaced: Mapping[str, Value | None] = field(default_factory=dict)
    seconds: float | None = None


def standing(first: RecordResult, second: RecordResult | None, asked: Mapping[str, float | None]) -> Standing:
    """Merge the first model's answers with the larger one's (None: it was not asked, or gave up).

    If the larger model failed on the record, or has no answer to an attribute (truncated, no valid value), the first
    model's answer stands.
    """
    if second is None or second.error is not None:
        return Standing(first, asked, seconds=second.engine_seconds if second is not None else 0.0)
    if first.error is not None:
        result = replace(second, engine_seconds=first.engine_seconds)
        return Standing(result, asked, dict.fromkeys(second.values), second.engine_seconds)
    before = first.values
    taken = {name: value for name, value in second.values.items() if _takes_place(value, before.get(name))}
    result = replace(first, values={**before, **taken})
    return Standing(result, asked, {name: before.get(name) for name in taken}, second.engine_seconds)


def _takes_place(value: Value, before: Value | None) -> bool:
    return is_answer(value.status) or before is None or not is_answer(before.status)


def replaced_answer(value: Value | None, engine: Mapping[str, Any], confidence: float | None) -> dict[str, Any]:
    """Return the answer of the model that `engine` describes, for the table's `replaced`; an error for None."""
    model = {name: engine[name] for name in ("model_id", "adapter_revision")}
    if value is None:
        nothing = dict.fromkeys(("value", "logprob_mean", "probability", "confidence"))
        return {"source": "model", **model, "status": "error", **nothing}
    return {
        "source": "model",
        **model,
        "status": value.status,
        "value": value.text if value.status == "value" else None if value.status == "absent" else value.raw or None,
        "logprob_mean": value.logprob_mean,
        "probability": own_probability(value),
        "confidence": confidence,
    }


def count_asked(stood: Iterable[Standing]) -> dict[str, int]:
    """Count a shard's answers in the second pass.

    Of `answers` in all, `asked` were asked again, in `products`. Of those, `replaced` are now the larger model's, and
    `changed` of these differ from before. `kept` are unchanged, because the larger model had no answer.
    """
    counts: Counter[str] = Counter(answers=0, products=0, asked=0, replaced=0, changed=0)
    for one in stood:
        values = one.result.values
        counts["answers"] += len(values)
        counts["products"] += bool(one.asked)
        counts["asked"] += len(one.asked)
        counts["replaced"] += len(one.replaced)
        counts["changed"] += sum(
            old is None or (old.status, old.items) != (values[name].status, values[name].items)
            for name, old in one.replaced.items()
        )
    return {**counts, "kept": counts["asked"] - counts["replaced"]}


_NO_ANSWER = ("truncated", "invalid", "error")


def is_answer(status: str) -> bool:
    """Return whether the model answers: a value, or that the text states none."""
    return status not in _NO_ANSWER


def own_probability(value: Value) -> float | None:
    """Return the model's own probability of the answer, else the product of its tokens' probabilities."""
    if value.probability is not None or value.logprob_mean is None:
        return value.probability
    return math.exp(value.num_tokens * value.logprob_mean)


def certainty(value: Value, confidence: float | None) -> float:
    """Return how sure an answer is, from 0 to 1: its confidence, else the model's own probability.

    A failed answer (truncated, no valid value) has 0, whatever its tokens' probability.
    """
    known = own_probability(value) if confidence is None else confidence
    return known if known is not None and is_answer(value.status) else 0.0


def doubtful(result: RecordResult, confidences: Mapping[str, float | None], below: float) -> dict[str, float | None]:
    """Return the attributes to ask again, with the confidence of their current answers.

    Args:
        confidences: confidences by attribute; None or missing: unknown.
    """
    return {
        name: confidences.get(name)
        for name, value in result.values.items()
        if below >= 1 or certainty(value, confidences.get(name)) < below
    }


def larger_model(config: JobConfig) -> JobConfig:
    """Replace model, adapter, engine and actors by the larger model's. Raises `ValueError` without a cascade."""
    cascade = config.cascade
    if cascade is None:
        raise ValueError("the job has no cascade")
    changes = {"model": cascade.model, "adapter": cascade.adapter, "engine": cascade.engine, "actors": cascade.actors}
    return config.model_copy(update={**changes, "cascade": None})
