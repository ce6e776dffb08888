"""Runs of characters of a document: the possible verbatim values.

    title   Blu Horn 2-in-1 mugs      begins   Blu  Horn  2  -  in  -  1  mugs
                                      runs     B  Bl  Blu  Blu H  Blu Ho ...  Horn  Horn 2  Horn 2- ...  mug  mugs

A run begins where a word, a number or a mark does (a letter of a script without spaces is a word). A short one, of at
most 30 characters and 4 words, ends anywhere ("Men" in "Mens"). A longer one, of at most 12 words and 12 x 40
characters, ends with a word, a number or a mark. It crosses no line break and no field. A document with more than
`MOST_RUNS` of them has shorter ones: those that end with a word, of at most 12 words, or 6, 3, 1. Of a text that is
still too long, only runs of its beginning are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import regex

from hpd_core.layout import IntArray

MOST_RUNS = 8192
_LONGEST, _FEW_WORDS = 30, 4
_MOST_WORDS = 12
_OF_A_WORD = 40
"""Maximum characters of a run per allowed word: a text without spaces is one word."""
_MOST_PLACES = 2**17
"""Maximum runs looked at in a text that has too many in any case."""
_SHORTER = (_MOST_WORDS, 6, 3, 1)
_WITHOUT_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_PIECE = regex.compile(rf"{_WITHOUT_SPACES}\p{{M}}*|[[^\W\d_]--{_WITHOUT_SPACES}]+|\d+|[^\w\s]", regex.V1)
_CHARACTER = regex.compile(r"\X")
_WORD = regex.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Runs:
    """Possible values of a verbatim value: the runs of a document, or null.

    Attributes:
        lines: lines of the document; see `lines_of`.
        most_tokens: maximum number of tokens of a run; longer ones are left out.
        nullable: whether null is possible; it always is if there is no run.
        rate: share of a run per unit of likelihood, from an earlier round with more runs; None: the runs share all
            that null does not have.
        are_numbers: whether the lines are numbers, to be chosen as they are, instead of text with runs.
    """

    lines: tuple[str, ...]
    most_tokens: int
    nullable: bool = True
    rate: float | None = None
    are_numbers: bool = False


def lines_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct non-blank lines of some texts, stripped, in order."""
    return tuple(dict.fromkeys(stripped for text in texts for line in text.splitlines() if (stripped := line.strip())))


def field_lines(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of a record's fields, without the fields' names."""
    return lines_of(fields.values())


def runs_of(lines: Iterable[str]) -> list[str]:
    """Return the distinct runs of some lines, in order, at most `MOST_RUNS`."""
    read = [_Line.of(line) for line in lines]
    spans = [line.spans(_LONGEST, _MOST_WORDS) for line in read]
    for most_words in _SHORTER:
        if sum(int(each.counts.sum()) for of_line in spans for each in of_line) <= MOST_RUNS:
            break
        spans = [line.spans(0, most_words) for line in read]
    found = (
        line.text[a:b]
        for line, (near, whole) in zip(read, spans, strict=True)
        for a, b in sorted({*near.pairs(), *whole.pairs()})
    )
    return list(islice(dict.fromkeys(islice(found, _MOST_PLACES)), MOST_RUNS))


def bounds_of(line: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the offsets in a line (of `lines_of`) where runs begin, and where words, numbers and marks end."""
    read = _Line.of(line)
    return frozenset(read.starts.tolist()), frozenset(read.stops.tolist())


@dataclass(frozen=True, slots=True)
class _Spans:
    """Ranges of ends of runs for n starts: `stops[firsts[i] : firsts[i] + counts[i]]`."""

    starts: IntArray
    stops: IntArray
    firsts: IntArray
    counts: IntArray

    @classmethod
    def of(cls, starts: IntArray, stops: IntArray, limits: IntArray) -> _Spans:
        """Return the spans from each start to the stops after it, up to its limit."""
        firsts = np.searchsorted(stops, starts, side="right")
        return cls(starts, stops, firsts, np.maximum(np.searchsorted(stops, limits, side="right") - firsts, 0))

    def pairs(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each run, in order, at most `_MOST_PLACES`."""
        before = np.cumsum(self.counts) - self.counts
        counts = np.clip(_MOST_PLACES - before, 0, self.counts)
        rows = np.repeat(np.arange(len(self.starts)), counts)
        ranks = np.arange(len(rows)) - before[rows]
        return list(zip(self.starts[rows].tolist(), self.stops[self.firsts[rows] + ranks].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Line:
    """Line with the ends of its non-space characters, the starts and ends of its pieces, and the ends of its words."""

    text: str
    characters: IntArray
    starts: IntArray
    stops: IntArray
    words: IntArray

    @classmethod
    def of(cls, text: str) -> _Line:
        """Analyse a non-empty `text` without spaces at its ends."""
        ends = range(1, len(text) + 1) if text.isascii() else [match.end() for match in _CHARACTER.finditer(text)]
        characters = [end for end in ends if not text[end - 1].isspace()]
        whole = {0, *ends}  # no part of a character
        pieces = [
            match.span() for match in _PIECE.finditer(text) if not match.group().isspace()
        ]  # of controls some are
        starts = [start for start, _ in pieces if start in whole]
        stops = [stop for _, stop in pieces if stop in whole]
        words = [match.end() for match in _WORD.finditer(text)]
        return cls(text, *(np.array(each, dtype=np.int64) for each in (characters, starts, stops, words)))

    def spans(self, longest: int, most_words: int) -> tuple[_Spans, _Spans]:
        """Return short runs that end anywhere, and those of at most `most_words` words that end with a piece."""
        first = np.searchsorted(self.words, self.starts, side="right")
        few, many = (
            self.words[np.minimum(first + count - 1, len(self.words) - 1)] for count in (_FEW_WORDS, most_words)
        )
        near, many = np.minimum(self.starts + longest, few), np.minimum(self.starts + _OF_A_WORD * most_words, many)
        return _Spans.of(self.starts, self.characters, near), _Spans.of(self.starts, self.stops, many)
