"""An answer as plain data for the page, with its texts unchanged. The page never makes HTML of any.

Products as a reviewer sees them: answers from the run's tables, texts from the catalog.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from hpd_core import Attribute, CategorySchema, Record, RecordResult, Value
from pipelines.catalog.html_text import shown_record
from pipelines.config.catalog_input import HtmlMode
from pipelines.job.run import Run
from pipelines.job.source_texts import MATCHES, Mark, SourceText, Wanted, cut, marks_of, read_texts
from pipelines.job.table_rows import find_places
from pipelines.quality.answer_features import answer_probability
from pipelines.store.layer import Layer
from pipelines.store.run_tables import Place
from pipelines.store.tables import stored_evidence
from pipelines.store.verdicts import AnswerKey, ReviewVerdict, known_forms

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
    return {
        "status": first["status"],
        "items": [_item(row, attribute) for row in rows] if first["status"] != "absent" else [],
        "confidence": _known(first["confidence"]),
        "probability": _known(answer_probability(first)),
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
    marks = marks_of(fields, [map(stored_evidence, row["evidence"] or ()) for row in rows])
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


_KEY = ("source_file", "source_row")
_PRODUCT_COLUMNS = (*_KEY, "product_id", "category", "input_hash")
_ANSWER_COLUMNS = (
    *(*_KEY, "category", "attribute", "value_index", "value_raw", "value_norm", "norm_status", "unit", "status"),
    *("evidence", "num_tokens", "logprob_mean", "probability", "confidence", "decision", "source"),
)


@dataclass(frozen=True, slots=True)
class ReviewedProduct:
    """A product under review.

    Attributes:
        answers: the model's rows, by attribute.
        fields: its texts; None if the catalog no longer has them.
    """

    product_id: str | None
    category: str
    input_hash: str
    answers: Mapping[str, Sequence[Row]]
    fields: Mapping[str, SourceText] | None

    @property
    def texts(self) -> dict[str, str]:
        """Texts that the model read, by field."""
        return {name: each.text for name, each in (self.fields or {}).items()}


def read_product(run: Run, layer: Layer, place: Place, shard: int) -> ReviewedProduct | None:
    """Read a product; None if the run has none there. Raises `UsageError` if the run cannot be read."""
    for row in run.parts.rows_of("products", _PRODUCT_COLUMNS, {place}, {shard}):
        answers = run.parts.answers_of(_ANSWER_COLUMNS, {place}, {shard})[place]
        before = {name: layer.model_rows(AnswerKey(*place, name), rows) for name, rows in answers.items()}
        about = row["product_id"], row["category"], row["input_hash"]
        texts, _ = read_texts(run.plan, run.input_settings, [Wanted(*place, *about[1:])])
        return ReviewedProduct(*about, before, texts.get(place))
    return None


def shard_of(run: Run, key: AnswerKey) -> int | None:
    """Return the committed shard that holds a row; None if there is none."""
    for shard in run.plan.shards:
        if shard.id in run.parts.shards and _holds(run, shard.pieces, key):
            part = run.parts.read_one("products", shard.id, _KEY)
            near = part.filter(pc.equal(part["source_row"], key.source_row))
            if key.source_file in near["source_file"].to_pylist():
                return shard.id
    return None


def places_of_items(
    product: ReviewedProduct, schema: CategorySchema, attribute: str, items: Sequence[str], html: HtmlMode
) -> list[list[dict[str, Any]]] | None:
    """Find each item's places in the text, as in the attribute table; None if the text is not available."""
    if product.fields is None:
        return None
    fields = {name: text.original for name, text in product.fields.items()}
    record = shown_record(Record("", product.category, fields), html)
    value = Value(text="; ".join(items), items=tuple(items), status="value")
    return find_places(record, schema, RecordResult("", product.category, {attribute: value}), html)[attribute]


def _holds(run: Run, pieces: Sequence[Any], key: AnswerKey) -> bool:
    return any(
        piece.start <= key.source_row < piece.stop and run.plan.files[piece.file].name == key.source_file
        for piece in pieces
    )
