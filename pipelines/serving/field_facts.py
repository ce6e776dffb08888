"""Facts about each field beyond OpenAI's interface: the extension `hpd` of an answer and of a stream's chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hpd_core import FieldAnswer, JsonResult


def field_facts(fields: Iterable[FieldAnswer]) -> list[dict[str, Any]]:
    """Return each field's path, value, text, status, token count, log-probabilities and probability, as plain data."""
    return [
        {
            "path": field.path,
            "value": field.value,
            "text": field.text,
            "status": field.status,
            "num_tokens": field.num_tokens,
            "logprob_mean": field.logprob_mean,
            "logprob_min": field.logprob_min,
            "probability": field.probability,
        }
        for field in fields
    ]


def answer_facts(result: JsonResult) -> dict[str, Any]:
    """Return the extension of a whole answer: its fields, and its deviations from the schema."""
    problems = [{"path": problem.path, "message": problem.message} for problem in result.problems]
    return {"fields": field_facts(result.fields.values()), "problems": problems}


def json_text(result: JsonResult) -> str:
    """Encode the answer itself as JSON."""
    return json.dumps(result.data, ensure_ascii=False)


def is_cut(result: JsonResult) -> bool:
    """Return whether a value was truncated."""
    return any(field.status == "truncated" for field in result.fields.values())
