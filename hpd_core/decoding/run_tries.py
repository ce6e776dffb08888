"""Tries of what verbatim values and stated numbers are chosen among: one of each document's runs (text/runs.py), shared
by its values.

A trie is in the tables (text/member_tries.py, text/constraints.py) until the values are decoded. Runs are encoded as
training encodes answers, so that choosing among them is choosing among answers. The trie is the constraint, too: if no
verdict is found among its runs, a value is decoded token by token along them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpd_core.decoding.prompt import Prompt
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import NULL_MEMBER, Entry, KindTables, MemberTrie
from hpd_core.text.runs import Runs, runs_of
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import spelled

_NULL = " null,\n"
_MOST_BYTES = 2**28
"""Memory of documents' tries in use above which no prompt is prepared that can wait."""


class RunTries:
    """Table entries for the tries of documents. `prepare` is for one thread, the rest for any."""

    def __init__(self, segments: SegmentTokenizer, endings: Endings, tables: KindTables) -> None:
        self._segments, self._endings, self._tables = segments, endings, tables
        self._encoder = WordEncoder(segments)
        (self._null,) = endings.ended(segments.encode_text([_NULL]))

    def limit(self, max_tokens: int) -> int:
        """Raise `max_tokens` to the length of `null`, which must always fit."""
        return max(max_tokens, len(self._null))

    @property
    def has_room(self) -> bool:
        """Whether there is memory for more documents' tries, beside those that are in use."""
        return self._tables.leases.num_lent_bytes < _MOST_BYTES

    def prepare(self, prompt: Prompt) -> None:
        """Enter the members of a prompt's verbatim values in its layout, and lease them until it is finished."""
        found: dict[Runs, Entry] = {}
        of_branches = {}
        for branch, each in prompt.runs.items():
            runs = replace(each, rate=None)  # tries do not depend on it
            if runs not in found:
                trie = self.trie(runs)
                has_choice = bool(self._tables.max_fed) and bool((trie.members != NULL_MEMBER).any())
                prompt.leases.append(self._tables.lend(trie, is_scored=has_choice))
                found[runs] = prompt.leases[-1].kept
            of_branches[branch] = found[runs]
        prompt.layout = prompt.layout.with_members(of_branches)

    def trie(self, runs: Runs) -> MemberTrie:
        """Return the trie of all runs, or numbers, as answers, and null."""
        answers = runs.lines if runs.are_numbers else map(spelled, runs_of(runs.lines))
        encoded = self._encoder.encode([f" {answer},\n" for answer in answers])
        rows = _apart(self._ended(encoded, runs.most_tokens), self._null)
        nulls = [self._null] if runs.nullable or not rows else []
        members = [*range(1, len(rows) + 1), *(NULL_MEMBER for _ in nulls)]
        trie = MemberTrie.of([*rows, *nulls], members)
        assert trie is not None, "spellings that can be told apart"
        return trie

    def as_it_stands(self, runs: Runs, text: str, raw: str, tokens: Sequence[int]) -> str:
        """Return the run or the number that was chosen, as the document has it.

        `text` is that, unless the tokenizer changes texts or a backslash can be read in two ways.

        Args:
            text: the parsed answer.
            raw, tokens: the answer before parsing.
        """
        if runs.are_numbers or ("\\" not in raw and any(text in line for line in runs.lines)):
            return text
        texts = runs_of(runs.lines)
        lines = [f" {spelled(each)},\n" for each in texts]
        encoded = self._ended(self._segments.encode_text(lines), len(tokens))
        by_tokens = dict(zip(reversed(encoded), reversed(texts), strict=True))
        return by_tokens.get(tuple(tokens), text)

    def _ended(self, encoded: Sequence[Sequence[int]], most_tokens: int) -> list[tuple[int, ...]]:
        """Cut each line after the token that ends it; () for those of more than `most_tokens`."""
        # One that is too long makes all rows so long.
        found = self._endings.ended([tokens[: most_tokens + 1] for tokens in encoded])
        return [tokens if len(tokens) <= most_tokens else () for tokens in found]


def _apart(rows: Iterable[tuple[int, ...]], null: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Sort rows, and drop those that begin with a kept one or with null, or that null begins with.

    A tokenizer may encode different texts alike."""
    found: list[tuple[int, ...]] = []
    for row in sorted(set(rows) - {()}):
        if row[: len(null)] == null[: len(row)] or (found and row[: len(found[-1])] == found[-1]):
            continue
        found.append(row)
    return found


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
