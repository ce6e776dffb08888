"""An answer as plain data for the page, with its texts unchanged. The page never makes HTML of any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute
from pipelines.confidence.answer_features import answer_probability
from pipelines.reporting.highlight import MATCHES, Mark, cut
from pipelines.reporting.source_texts import SourceText
from pipelines.review_desk.products import ReviewedProduct
from pipelines.reviewing.checked_items import known_forms
from pipelines.reviewing.verdicts import AnswerKey, ReviewVerdict
from pipelines.store.evidence import stored_evidence

Row = Mapping[str, Any]


def shown_answer(
    key: AnswerKey, product: ReviewedProduct, attribute: Attribute, mine: ReviewVerdict | None
) -> dict[str, Any]:
    """Return the data that a reviewer is shown.

    Args:
        mine: the reviewer's earlier verdict on it.
    """
    rows = product.answers[key.attribute]
    return {
        "key": {"source_file": key.source_file, "source_row": key.source_row, "attribute": key.attribute},
        "input_hash": product.input_hash,
        "product_id": product.product_id,
        "category": product.category,
        "attribute": shown_attribute(attribute),
        "answer": _answer(rows, attribute),
        "fields": None if product.fields is None else _fields(product.fields, rows),
        "mine": None if mine is None else {"verdict": mine.verdict, "items": list(mine.answer.items)},
    }


def shown_attribute(attribute: Attribute) -> dict[str, Any]:
    """Return the attribute without its vocabulary, which the page requests separately, as it may be large."""
    return {
        "name": attribute.name,
        "description": attribute.description,
        "type": attribute.type,
        "unit": attribute.unit.want if attribute.unit else None,
        "multiple": attribute.multiple,
        "members": len(attribute.values or ()),
    }


def shown_vocabulary(attribute: Attribute) -> list[dict[str, Any]]:
    """Return the members of an enum, or the two values of a boolean."""
    if attribute.type == "boolean":
        return [{"label": label} for label in ("true", "false")]
    return [
        {"label": each.label, "synonyms": list(each.synonyms), "description": each.description}
        for each in attribute.values or ()
    ]


def seen_items(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the model's values."""
    return tuple(row["value_raw"] for row in rows if row["status"] == "value" and row["value_raw"] is not None)


def is_unclear(row: Row, attribute: Attribute) -> bool:
    """Return whether a number is ambiguous or has a conflicting unit, so that it cannot be accepted unchanged."""
    return attribute.type == "number" and row["norm_status"] in ("ambiguous", "conflict")


def seen_forms(attribute: Attribute, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the model's numbers, each in the attribute's unit; empty for other types."""
    if attribute.type != "number" or rows[0]["status"] != "value":
        return ()
    return known_forms((row["value_norm"], row["unit"] if attribute.unit else None) for row in rows)


def _answer(rows: Sequence[Row], attribute: Attribute) -> dict[str, Any]:
    first = rows[0]
    probability = first["probability"]
    if probability is None:
        probability = answer_probability(first["num_tokens"], first["logprob_mean"])
    return {
        "status": first["status"],
        "items": [_item(row, attribute) for row in rows] if first["status"] != "absent" else [],
        "confidence": _known(first["confidence"]),
        "probability": _known(probability),
        "decision": first["decision"],
    }


def _known(certainty: float | None) -> float | None:
    """Return the certainty, or None if it is not finite, because JSON cannot encode that."""
    return certainty if certainty is not None and math.isfinite(certainty) else None


def _item(row: Row, attribute: Attribute) -> dict[str, Any]:
    unit = row["unit"] if attribute.type == "number" else None  # the normal form of a text has it
    norm = " ".join(each for each in (row["value_norm"], unit) if each)
    return {
        "text": row["value_raw"],
        "norm": norm if norm != row["value_raw"] else None,
        # What a correction begins with: a bare number would be taken to be in the attribute's unit.
        "typed": norm if unit and norm else row["value_raw"],
        "is_unclear": is_unclear(row, attribute),
        # A truth value is a conclusion: nobody expects to find it in the text.
        "places": None if row["evidence"] is None or attribute.type == "boolean" else len(row["evidence"]),
    }


def _fields(fields: Mapping[str, SourceText], rows: Sequence[Row]) -> list[dict[str, Any]]:
    marks: dict[str, list[Mark]] = {name: [] for name in fields}
    for index, row in enumerate(rows):
        for place in row["evidence"] or ():
            field = fields.get(place["field"])
            if field is not None and (mark := field.mark(stored_evidence(place), index)) is not None:
                marks[place["field"]].append(mark)
    return [
        {"name": name, "segments": list(_segments(field.text, marks[name]))}
        for name, field in fields.items()
        if field.text
    ]


def _segments(text: str, marks: Sequence[Mark]) -> Iterator[list[str | None]]:
    """Yield all of the text in pieces, each with its kind of match to a value, or None."""
    at = 0
    for segment in cut(text, marks):
        end = at + (segment.omitted or len(segment.text))
        match = segment.match if segment.match is None or segment.match in MATCHES else "fuzzy"
        yield [text[at:end], match]
        at = end
