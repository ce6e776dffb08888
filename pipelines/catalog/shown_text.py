"""Field text as it is shown: HTML is rendered, and invisible text counts as empty."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpd_core import Evidence, Record
from pipelines.catalog.html_text import read_html
from pipelines.config.catalog_input import HtmlMode

Places = Mapping[str, tuple[tuple[Evidence, ...], ...]]
"""Places of each item, by attribute."""

# Spaces, controls and what Unicode calls ignorable: joiners, marks of direction, fillers, variation selectors, tags.
_INVISIBLE = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]*"
)


@dataclass(frozen=True, slots=True)
class MarkedUpRecord(Record):
    """A record with HTML in it: `fields` are the texts that it shows.

    Attributes:
        originals: catalog text of the fields that are shown differently from it.
    """

    originals: Mapping[str, str]

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedUpRecord, (self.id, self.category, self.fields, self.originals)


def shown_record(record: Record, mode: HtmlMode) -> Record:
    """Return the record as a model reads it; `record` has the texts of the catalog."""
    fields = {name: shown_text(text, mode) for name, text in record.fields.items()}
    originals = {name: text for name, text in record.fields.items() if fields[name] not in (text, "")}
    if originals:
        return MarkedUpRecord(record.id, record.category, fields, originals)
    return Record(record.id, record.category, fields)


def shown_text(text: str, mode: HtmlMode) -> str:
    """Return the text that a field shows; "" if all of it is invisible."""
    read = read_html(text, mode)
    shown = text if read is None else read.text
    return "" if _INVISIBLE.fullmatch(shown) else shown


def original_places(record: Record, found: Places, mode: HtmlMode) -> Places:
    """Return the places in the catalog's texts of fields, instead of in the texts that these show.

    Args:
        found: places as returned by `find_evidence`.
        mode: mode in which the record was read.
    """
    if not isinstance(record, MarkedUpRecord):
        return found
    read = {name: read_html(text, mode) for name, text in record.originals.items()}

    def moved(place: Evidence) -> Evidence:
        shown = read.get(place.field)
        if shown is None:
            return place
        start, end = shown.original_span(place.start, place.end)
        return replace(place, start=start, end=end, text=record.originals[place.field][start:end])

    return {name: tuple(tuple(map(moved, item)) for item in items) for name, items in found.items()}
