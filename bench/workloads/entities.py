"""Sentences whose named entities are marked (sample/entities), and how answers are scored: by exact spans.

The [ORG Bank of [LOC Lisbon]] opens in May.      one entity within another
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TYPES = ("PER", "ORG", "LOC", "MISC")
"""As CoNLL-2003 has them."""

Mention = tuple[str, str]
"""Type and text."""
Span = tuple[str, int, int]
"""Type, first character, and the one behind the last. What stands nowhere is (type, -n, -n)."""

_MARK = re.compile(r"\[(?P<type>[A-Z]+) |\]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text and the entities in it."""

    text: str
    spans: frozenset[Span]

    @property
    def mentions(self) -> list[Mention]:
        """In the order of the text, an outer one before those within it."""
        ordered = sorted(self.spans, key=lambda span: (span[1], -span[2]))
        return [(type_, self.text[start:stop]) for type_, start, stop in ordered]


def read_sentences(paths: Iterable[Path]) -> list[Sentence]:
    """Of every line of these files one.

    Raises:
        ValueError: a line is not marked as it should be; the message names file and line.
    """
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                found.append(read_marked(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    return found


def read_marked(line: str) -> Sentence:
    """Raises ValueError where a mark is not closed, not opened, or of no type."""
    text, spans, opened, done = "", set(), [], 0
    for mark in _MARK.finditer(line):
        text += line[done : mark.start()]
        done = mark.end()
        if mark["type"]:
            if mark["type"] not in TYPES:
                raise ValueError(f"{mark['type']!r} is no type: use one of {', '.join(TYPES)}")
            opened.append((mark["type"], len(text)))
        elif opened:
            spans.add((*opened.pop(), len(text)))
        else:
            raise ValueError("a mark is closed that was not opened")
    if opened:
        raise ValueError(f"the mark of {opened[-1][0]} is not closed")
    return Sentence(text + line[done:], frozenset(spans))


def anchored(text: str, mentions: Iterable[Mention]) -> list[Span]:
    """Where mentions stand: each at the first place, of whole words, that none of its type and text has taken.

    One that stands nowhere (any more) has a span of its own that no sentence has, so that it counts as wrong.
    """
    found: list[Span] = []
    for type_, mention in mentions:
        places = re.finditer(rf"(?<!\w){re.escape(mention)}(?!\w)", text) if mention else ()
        free = (span for place in places if (span := (type_, *place.span())) not in found)
        nowhere = -1 - len(found)
        found.append(next(free, (type_, nowhere, nowhere)))
    return found


@dataclass(frozen=True, slots=True)
class Score:
    """Over all spans: those that were right, were answered, and are marked."""

    right: int
    answered: int
    marked: int

    @property
    def precision(self) -> float:
        """Of what was answered."""
        return self.right / self.answered if self.answered else 0.0

    @property
    def recall(self) -> float:
        """Of what is marked."""
        return self.right / self.marked if self.marked else 0.0

    @property
    def f1(self) -> float:
        """Their harmonic mean."""
        return 2 * self.right / (self.answered + self.marked) if self.answered + self.marked else 0.0


def score(sentences: Sequence[Sentence], answers: Sequence[Collection[Mention]]) -> Score:
    """Micro-averaged; nothing is right but the same type from the same first to the same last character."""
    right = answered = 0
    for sentence, mentions in zip(sentences, answers, strict=True):
        spans = anchored(sentence.text, mentions)
        answered += len(spans)
        right += len(sentence.spans & set(spans))
    return Score(right, answered, sum(len(sentence.spans) for sentence in sentences))
