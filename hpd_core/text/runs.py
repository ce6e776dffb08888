"""The runs of characters of a document: what a verbatim value may be.

    title   Blu Horn 2-in-1 mugs      begins   Blu  Horn  2  -  in  -  1  mugs
                                      runs     B  Bl  Blu  Blu H  Blu Ho ...  Horn  Horn 2  Horn 2- ...  mug  mugs

A run begins where a word, a number or a mark does (a letter of a script that writes no spaces is a word). It goes on
to anywhere in the first 30 characters and 4 words ("Men" in "Mens"), or to the end of a word within 12, and within 40
characters for each of these. It crosses no line break and no field. A document with more than `MOST_RUNS` of them has
shorter ones: those that end with a word, of at most 12 words, or 6, 3, 1; and of a text that is longer still, those of
its beginning.
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
"""Characters that a run may have for each word that it may have: what is written without spaces is one word."""
_MOST_PLACES = 2**17
"""Of a text that is too long in any case, so many places are looked at."""
_SHORTER = (_MOST_WORDS, 6, 3, 1)
_WITHOUT_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_PIECE = regex.compile(rf"{_WITHOUT_SPACES}\p{{M}}*|[[^\W\d_]--{_WITHOUT_SPACES}]+|\d+|[^\w\s]", regex.V1)
_CHARACTER = regex.compile(r"\X")
_WORD = regex.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Runs:
    """What a verbatim value may be: a run of a document, or null.

    Attributes:
        lines: the document's; see `lines_of`.
        most_tokens: runs of more are left out.
        nullable: whether null is one; it is in any case, where there is no run.
        rate: what share a run has for a likelihood of 1, as it was when there were more of them; None: the runs share
            all that null has not.
    """

    lines: tuple[str, ...]
    most_tokens: int
    nullable: bool = True
    rate: float | None = None


def lines_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The lines of some texts that hold anything, each once."""
    return tuple(dict.fromkeys(stripped for text in texts for line in text.splitlines() if (stripped := line.strip())))


def field_lines(fields: Mapping[str, str]) -> tuple[str, ...]:
    """The lines of a record's fields, without the fields' names."""
    return lines_of(fields.values())


def runs_of(lines: Iterable[str]) -> list[str]:
    """The runs of some lines, each once, in the order in which they stand there."""
    read = [_Line.of(line) for line in lines]
    spans = [line.spans(_LONGEST, _MOST_WORDS) for line in read]
    for most_words in _SHORTER:
        if sum(map(len, spans)) <= MOST_RUNS:
            break
        spans = [line.spans(0, most_words) for line in read]
    found = (line.text[a:b] for line, each in zip(read, spans, strict=True) for a, b in each.pairs())
    return list(islice(dict.fromkeys(islice(found, _MOST_PLACES)), MOST_RUNS))


def bounds_of(line: str) -> tuple[frozenset[int], frozenset[int]]:
    """Where in a line (as of `lines_of`) runs begin, and where words, numbers and marks end."""
    read = _Line.of(line)
    return frozenset(read.starts.tolist()), frozenset(read.stops.tolist())


@dataclass(frozen=True, slots=True)
class _Spans:
    """For n starts, ranges of places where runs end: `stops[firsts[i] : firsts[i] + counts[i]]`."""

    starts: IntArray
    stops: IntArray
    firsts: IntArray
    counts: IntArray

    @classmethod
    def of(cls, starts: IntArray, stops: IntArray, limits: IntArray) -> _Spans:
        """The stops behind each start, up to its limit."""
        firsts = np.searchsorted(stops, starts, side="right")
        return cls(starts, stops, firsts, np.maximum(np.searchsorted(stops, limits, side="right") - firsts, 0))

    def pairs(self) -> list[tuple[int, int]]:
        """(start, stop) of each run, in order, up to `_MOST_PLACES`."""
        before = np.cumsum(self.counts) - self.counts
        counts = np.clip(_MOST_PLACES - before, 0, self.counts)
        rows = np.repeat(np.arange(len(self.starts)), counts)
        ranks = np.arange(len(rows)) - before[rows]
        return list(zip(self.starts[rows].tolist(), self.stops[self.firsts[rows] + ranks].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _BothSpans:
    near: _Spans
    whole: _Spans

    def __len__(self) -> int:
        return int(self.near.counts.sum() + self.whole.counts.sum())

    def pairs(self) -> list[tuple[int, int]]:
        return sorted({*self.near.pairs(), *self.whole.pairs()})


@dataclass(frozen=True, slots=True)
class _Line:
    """A line, and where in it characters end that no space does, where pieces begin and end, and where words end."""

    text: str
    characters: IntArray
    starts: IntArray
    stops: IntArray
    words: IntArray

    @classmethod
    def of(cls, text: str) -> _Line:
        """`text`: not empty, without spaces at its ends."""
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

    def spans(self, longest: int, most_words: int) -> _BothSpans:
        """Runs of at most so many words that end with a piece, and of few words and characters that end anywhere."""
        first = np.searchsorted(self.words, self.starts, side="right")
        few, many = (
            self.words[np.minimum(first + count - 1, len(self.words) - 1)] for count in (_FEW_WORDS, most_words)
        )
        near, many = np.minimum(self.starts + longest, few), np.minimum(self.starts + _OF_A_WORD * most_words, many)
        return _BothSpans(_Spans.of(self.starts, self.characters, near), _Spans.of(self.starts, self.stops, many))
