"""HTML rendered as the text that it shows, with the original position of each character.

`auto` parses only unambiguous markup: HTML elements in a text that is clearly HTML (a closing tag, an attribute,
`<br>`), and named characters. "a < b", "R&D", "size <M>" and `List<T>` are kept.

Existing parsers do not report character positions, and all of them swallow `<M>`. Python's own also changes its reading
of damaged markup between patch releases, and with it what a model would read. So this module has its own parser; only
the character names are the standard library's.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hpd_core import Evidence, Record
from pipelines.catalog.html_reader import HtmlReader
from pipelines.config.catalog_input import HtmlMode

# What was escaped twice is read in a second round, and so on; nobody escapes that often in earnest.
_MAX_ROUNDS = 4
# Magento's pages keep HTML like that.
_ESCAPED_CONTENT = re.compile(r"""<\w[^<>]*\sdata-content-type=["']?html\b""")


@dataclass(frozen=True)
class ShownText:
    """The text that a field shows. Character i comes from the original's [starts[i], ends[i]).

    A line break that stands for a tag comes from that tag and covers nothing before or after it.

    Attributes:
        pieces: parts of `text`. A piece comes as a whole from the original's [start, end), or, if end is None, is
            copied unchanged from start.
        before: the text that `pieces` were read from, if it is not the original itself.
    """

    text: str
    pieces: Sequence[tuple[str, int, int | None]]
    before: ShownText | None = None

    @property
    def starts(self) -> Sequence[int]:
        """Start of each character in the original, ascending."""
        return self._places[0]

    @property
    def ends(self) -> Sequence[int]:
        """End of each character in the original, ascending."""
        return self._places[1]

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        """Starts and ends, computed lazily: for most texts only the text is needed."""
        starts: list[int] = []
        ends: list[int] = []
        for text, start, end in self.pieces:
            if end is None:
                starts += range(start, start + len(text))
                ends += range(start + 1, start + len(text) + 1)
            else:
                starts += [start] * len(text)
                ends += [end] * len(text)
        if self.before is not None:
            spans = [self.before.original_span(start, end) for start, end in zip(starts, ends, strict=True)]
            starts, ends = [start for start, _ in spans], [end for _, end in spans]
        return starts, ends

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that the characters [start, end) come from; there must be at least one."""
        return self.starts[start], self.ends[end - 1]

    def shown_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of characters that come only from the original's [start, end); it may be empty."""
        return bisect_left(self.starts, start), bisect_right(self.ends, end)


def read_html(text: str, mode: HtmlMode) -> ShownText | None:
    """Return what the markup in `text` shows; None if there is none.

    Args:
        mode: "auto": as described above; "always": whatever looks like a tag is one; "never": there is no markup.
    """
    if mode == "never":
        return None
    shown = None
    for number in range(_MAX_ROUNDS):
        now = text if shown is None else shown.text
        if "<" not in now and "&" not in now:
            break
        reader = HtmlReader(now, always=mode == "always" and number == 0)
        pieces = reader.read()
        if pieces is None:
            break
        shown = ShownText("".join([piece[0] for piece in pieces]), pieces, shown)
        if reader.has_tags and not _ESCAPED_CONTENT.search(text):
            # Beside real tags, "&lt;br&gt;" is there to be seen.
            break
    return shown


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

    originals: Mapping[str, str] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedUpRecord, (self.id, self.category, self.fields, self.numbers, self.originals)


def shown_record(record: Record, mode: HtmlMode) -> Record:
    """Return the record as a model reads it; `record` has the texts of the catalog."""
    fields = {name: shown_text(text, mode) for name, text in record.fields.items()}
    originals = {name: text for name, text in record.fields.items() if fields[name] not in (text, "")}
    if originals:
        return MarkedUpRecord(record.id, record.category, fields, originals=originals)
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
