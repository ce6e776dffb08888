"""Merge of two models' answers: the larger one's stands, the other one's is kept beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpd_core import RecordResult, Value
from pipelines.cascading.doubt import is_answer, own_probability


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
