"""Encoder of many lines that share words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpd_core.text.tokenization import SegmentTokenizer

_BEFORE_WORDS = re.compile(r"(?<=\S)(?= \S)")
_MOST_KNOWN = 2**16


class WordEncoder:
    """Encoder of lines, equivalent to `SegmentTokenizer.encode_text`.

    Each word is encoded once if the tokenizer encodes words separately; else it is not faster. Not thread-safe.
    """

    def __init__(self, segments: SegmentTokenizer) -> None:
        self._segments = segments
        self._known: dict[str, list[int]] = {}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line."""
        if not self._segments.encodes_words_apart:
            return self._segments.encode_text(lines)
        cut = [_BEFORE_WORDS.split(line) for line in lines]
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        known = self._known
        new = list({word for words in cut for word in words} - known.keys())
        known.update(zip(new, self._segments.encode_text(new), strict=True))
        return [[token for word in words for token in known[word]] for words in cut]
