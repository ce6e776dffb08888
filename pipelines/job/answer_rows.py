"""Rows of the attribute table for an answer: each item, its evidence, and its normalised form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hpd_core import CategorySchema, Evidence, Record, RecordResult, Value
from hpd_core.text.grounding import find_evidence
from hpd_core.text.number_atoms import VULGAR_FRACTIONS
from pipelines.catalog.shown_text import original_places
from pipelines.config.catalog_input import HtmlMode
from pipelines.normalising.normalise import Normaliser
from pipelines.normalising.places import CONTEXT

Row = dict[str, Any]

_NUMERIC = re.compile(rf"[\d{VULGAR_FRACTIONS}]")


def find_places(
    record: Record, schema: CategorySchema, result: RecordResult, html: HtmlMode
) -> dict[str, list[list[Row]]]:
    """Return, by attribute, the `evidence` rows of each item: its places in the catalog, and the text around them."""
    shown = find_evidence(record, schema, result)
    originals = original_places(record, shown, html)
    return {
        name: [
            [evidence_row(*pair, record) for pair in zip(places, seen, strict=True)]
            for places, seen in zip(items, shown[name], strict=True)
        ]
        for name, items in originals.items()
    }


def evidence_row(place: Evidence, shown: Evidence, record: Record) -> Row:
    """Return a place as a row of the table. `shown` is the same place in the record's text."""
    row: Row = {"field": place.field, "start": place.start, "end": place.end, "text": place.text, "match": place.match}
    # Units stand at numbers. The text around other values is not needed.
    if _NUMERIC.search(place.text):
        text = record.fields[shown.field]
        row["before"] = text[max(0, shown.start - CONTEXT) : shown.start]
        row["after"] = text[shown.end : shown.end + CONTEXT]
    return row


def answer_rows(
    attribute: str, value: Value, evidence: Sequence[Sequence[Row]], normaliser: Normaliser
) -> Iterator[Row]:
    """Yield the rows of one answer, without the cells that all rows of the product share."""
    for index, text in enumerate(_raw_texts(value)):
        # Empty: the value stands nowhere in the text. Null: there is no value to look for.
        places = evidence[index] if value.status == "value" else None
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
            "choice": value.choice,
            "probability": value.probability,
            "margin": value.margin,
            "source": "model",
            **(normaliser.columns(text, places) if places is not None and text is not None else {}),
        }


def _raw_texts(value: Value) -> tuple[str | None, ...]:
    if value.status == "value":
        return value.items
    # The model's text is kept even if it is not an answer; for "not stated" there is none.
    return (None,) if value.status == "absent" else (value.raw or None,)
