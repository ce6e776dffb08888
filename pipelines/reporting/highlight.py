"""A text cut into segments at the places of values. Pure functions; offsets are code points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from hpd_core.types import MatchKind
from pipelines.reporting.facts.sample import TextSegment

# The strictest first.
MATCHES: tuple[MatchKind, ...] = ("exact", "equal number", "folded", "fuzzy", "ambiguous")
_SHOWN = 400  # characters of a long stretch without values that are shown at each of its ends


class Mark(NamedTuple):
    """Place [start, end) of the value with index `value`."""

    start: int
    end: int
    value: int
    match: str


def cut(text: str, marks: Sequence[Mark]) -> tuple[TextSegment, ...]:
    """Cut the text into segments, in order; each has the same values all along.

    0    5    10
    |red shoe |    marks: 0 "red shoe", 1 "red"
     ^^^              -> "red" (1, 0), " shoe" (0,)
     ^^^^^^^^
    """
    borders = sorted({0, len(text), *(edge for mark in marks for edge in (mark.start, mark.end))})
    segments = []
    for start, end in itertools.pairwise(borders):
        # The shortest value is on top: a longer one shows beside it.
        here = sorted(
            (mark for mark in marks if mark.start <= start and mark.end >= end),
            key=lambda mark: (mark.end - mark.start, mark.value),
        )
        values = tuple(dict.fromkeys(mark.value for mark in here))
        match = min((mark.match for mark in here), key=_strictness, default=None)
        segments += [TextSegment(text[start:end], values, match)] if values else _shortened(text[start:end])
    return tuple(segments)


def fits(text: str, mark: Mark, found: str) -> bool:
    """Return whether the text at the mark is `found`."""
    return 0 <= mark.start < mark.end <= len(text) and text[mark.start : mark.end] == found


def match_class(match: str) -> str:
    """Return the match kind as a style-sheet class, from a closed set of words, whatever the table holds."""
    return (match if match in MATCHES else "fuzzy").replace(" ", "-")


def _strictness(match: str) -> int:
    return MATCHES.index(match) if match in MATCHES else len(MATCHES)


def _shortened(text: str) -> list[TextSegment]:
    """Return segments for text without values; the middle of a long text is left out."""
    omitted = len(text) - 2 * _SHOWN
    if omitted <= _SHOWN:
        return [TextSegment(text)]
    return [TextSegment(text[:_SHOWN]), TextSegment("", omitted=omitted), TextSegment(text[-_SHOWN:])]
