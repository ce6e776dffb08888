"""Answers that a column of the catalog has already (`input.copied`): no model is asked for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpd_core import CategorySchema, Record, Value
from hpd_core.text.values import join_items
from pipelines.catalog.cells import CellError
from pipelines.catalog.rows import mapped_text
from pipelines.catalog.shown_text import shown_record
from pipelines.config.catalog_input import InputConfig
from pipelines.job.answer_rows import answer_rows
from pipelines.normalising.normalise import Normaliser, normalisers
from pipelines.reviewing.checked_items import ItemError, checked_items

_SEVERAL = re.compile(r"[,;|]")
"""Signs in one text that may stand between several values."""


def copied_items(
    row: Mapping[str, Any], record: Record, config: InputConfig, schema: CategorySchema
) -> dict[str, tuple[str, ...]]:
    """Return the items of the attributes that a column answers. Cells that are empty, cannot be read or hold no value
    of the attribute are left out, as are those that may hold several values in one text."""
    found = {}
    for attribute in schema.attributes:
        if attribute.name not in config.copied:
            continue
        try:
            cell = mapped_text(row, config.copied[attribute.name], config)
            shown = shown_record(Record(record.id, record.category, {attribute.name: cell}), config.html)
            text = shown.fields[attribute.name]
            cells = text.split(config.list_separator) if attribute.multiple else [text]
            if attribute.multiple and len(cells) == 1 and _SEVERAL.search(text):
                continue  # nothing says what parts them
            normaliser = normalisers(schema)[attribute.name]
            found[attribute.name] = checked_items(attribute, cells, record.fields, normaliser)
        except (CellError, ItemError):
            continue
    return found


def copied_rows(attribute: str, items: tuple[str, ...], column: str, normaliser: Normaliser) -> list[dict[str, Any]]:
    """Return rows of the attribute table for copied items. Their evidence is the column."""
    value = Value(join_items(items), items, "value")
    places = [[{"field": column, "start": 0, "end": len(item), "text": item, "match": "exact"}] for item in items]
    answered = answer_rows(attribute, value, places, normaliser)
    return [row | {"source": "column", "decision": "accept"} for row in answered]
