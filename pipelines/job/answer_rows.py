"""An answer as rows of the attribute table: each item, where it stands, and what it is in the attribute's own form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpd_core import CategorySchema, Evidence, Record, RecordResult, Value
from hpd_core.text.grounding import find_evidence
from pipelines.catalog.shown_text import original_places
from pipelines.config.extraction import HtmlMode
from pipelines.normalising.normalise import Normaliser
from pipelines.normalising.normalised import normalised_columns
from pipelines.normalising.places import text_around

Row = dict[str, Any]


def find_places(
    record: Record, schema: CategorySchema, result: RecordResult, html: HtmlMode
) -> dict[str, list[list[Row]]]:
    """By attribute, the table's `evidence` of each item: where it stands in the catalog, what is shown around it."""
    shown = find_evidence(record, schema, result)
    originals = original_places(record, shown, html)
    return {
        name: [
            [_evidence_row(record, *pair) for pair in zip(places, shown_places, strict=True)]
            for places, shown_places in zip(items, shown[name], strict=True)
        ]
        for name, items in originals.items()
    }


def _evidence_row(record: Record, place: Evidence, shown: Evidence) -> Row:
    text = record.fields[shown.field]
    return {
        "field": place.field,
        "start": place.start,
        "end": place.end,
        "text": place.text,
        "match": place.match,
        **text_around(text, shown.start, shown.end),
    }


def answer_rows(
    attribute: str, value: Value, evidence: Sequence[Sequence[Row]], normaliser: Normaliser
) -> Iterator[Row]:
    """The rows of one answer; what they have in common with the product's other rows is not in them."""
    for index, text in enumerate(_raw_texts(value)):
        # Empty: the value stands nowhere in the text. Null: there is no value to look for.
        places = evidence[index] if value.status == "value" else None
        normalised = None if places is None or text is None else normaliser.normalise(text, places)
        yield {
            "attribute": attribute,
            "value_index": index,
            "value_raw": text,
            "status": value.status,
            "evidence": places,
            "num_tokens": value.num_tokens,
            "num_dropped": value.num_dropped,
            "logprob_mean": value.logprob_mean,
            "logprob_min": value.logprob_min,
            **normalised_columns(normalised),
        }


def _raw_texts(value: Value) -> tuple[str | None, ...]:
    if value.status == "value":
        return value.items
    # What the model wrote is kept where it is no answer; where the answer is "not stated" there is nothing.
    return (None,) if value.status == "absent" else (value.raw or None,)
