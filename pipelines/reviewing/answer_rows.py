"""A person's answer as rows of the attribute table, replacing the model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpd_core.text.values import join_items
from pipelines.normalising.normalise import Normaliser
from pipelines.normalising.normalised import NORMALISED_COLUMNS
from pipelines.reviewing.checked_items import with_unit
from pipelines.reviewing.corrections import Correction
from pipelines.store.columns import REPLACED

Row = Mapping[str, Any]

# What is only true of what a model wrote.
_OF_THE_MODEL = ("logprob_mean", "logprob_min", "choice", "probability", "margin", "confidence")


def corrected_rows(rows: Sequence[Row], correction: Correction, normaliser: Normaliser | None) -> list[dict[str, Any]]:
    """Return the rows of an answer as a person left it.

    An accepted answer keeps the model's values. A person's value has no tokens (`num_tokens` is 0) and no
    probabilities; a model's name on it is the replaced model's.

    Args:
        rows: rows of the answer, for all of its items; with any columns.
        normaliser: the attribute's; None if no schema has it, so that a person's value gets no normalised form.
    """
    columns = rows[0].keys()
    reviewed = {"source": "review", "decision": "accept", "confidence": None, "replaced": None}
    if correction.is_accepted:
        found = [{**row, **reviewed} for row in rows]
    else:
        found = [{**rows[0], **reviewed, **cells} for cells in _written(correction, normaliser)]
    found[0]["replaced"] = [*(rows[0].get("replaced") or ()), replaced_answer(rows)]
    return [{name: row.get(name) for name in columns} for row in found]


def replaced_answer(rows: Sequence[Row]) -> dict[str, Any]:
    """Return an answer as stored in the column `replaced`."""
    first = rows[0]
    texts = [str(row["value_raw"]) for row in rows if row.get("value_raw") is not None]
    kept = {name: first.get(name) for name in (field.name for field in REPLACED)}
    return kept | {"source": first.get("source") or "model", "value": join_items(texts) if texts else None}


def is_written(source: str | None, num_tokens: int | None) -> bool:
    """Return whether a person wrote the value of a row, so that it has no model tokens."""
    return source == "review" and not num_tokens


def _written(correction: Correction, normaliser: Normaliser | None) -> list[dict[str, Any]]:
    nothing = {
        **dict.fromkeys((*_OF_THE_MODEL, *NORMALISED_COLUMNS, "value_raw", "evidence")),
        "status": correction.status,
        "value_index": 0,
        "num_tokens": 0,
        "num_dropped": 0,
    }
    if not correction.items:
        return [nothing]
    places = correction.evidence or [[]] * len(correction.items)
    return [
        {**nothing, "value_index": index, "value_raw": item, "evidence": [dict(place) for place in places[index]]}
        | (normaliser.columns(item, None) if normaliser is not None else {})
        for index, item in enumerate(with_unit(item, correction.verdict.unit) for item in correction.items)
    ]
