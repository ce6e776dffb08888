"""Tries of what verbatim values are chosen among: one of each document's runs (text/runs.py), shared by its values.

A trie is in the tables (text/member_tries.py, text/constraints.py) until the values are decoded. Runs are encoded as
training encodes answers, so that choosing among them is choosing among answers. The trie is the constraint, too: if no
verdict is found among its runs, a value is decoded token by token along them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import FREE, Branch, Members
from hpd_core.text.constraints import Constraints
from hpd_core.text.endings import Endings
from hpd_core.text.leases import Lease
from hpd_core.text.member_tries import NULL_MEMBER, ClosedAnswers, MemberTrie, token_grid
from hpd_core.text.runs import Runs, runs_of
from hpd_core.text.token_states import TokenStates
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import ValueKind, Verbatim, spelled

_NULL = " null,\n"
_MOST_BYTES = 2**28
"""Memory of documents' tries in use above which no prompt is prepared that can wait."""


class RunTries:
    """Table entries for the tries of documents. `prepare` is for one thread, the rest for any."""

    def __init__(
        self, segments: SegmentTokenizer, endings: Endings, constraints: Constraints, closed: ClosedAnswers
    ) -> None:
        self._segments, self._endings = segments, endings
        self._constraints, self._closed = constraints, closed
        self._encoder = WordEncoder(segments)
        (null,) = segments.encode_text([_NULL])
        self._null = tuple(null[: endings.length(null, True)])

    def limit(self, max_tokens: int) -> int:
        """Raise `max_tokens` to the length of `null`, which must always fit."""
        return max(max_tokens, len(self._null))

    @property
    def has_room(self) -> bool:
        """Whether there is memory for more documents' tries, beside those that are in use."""
        return self._closed.leases.num_lent_bytes + self._constraints.leases.num_lent_bytes < _MOST_BYTES

    def prepare(self, prompt: Prompt) -> None:
        """Enter the members of a prompt's verbatim values in its layout, and lease them until it is finished."""
        found: dict[Runs, tuple[int, Members | None]] = {}
        of_branches = {}
        for branch, each in prompt.runs.items():
            runs = replace(each, rate=None)  # tries do not depend on it
            if runs not in found:
                states, members = self._lend(runs)
                prompt.leases += [states, members]
                found[runs] = states.kept, members.kept
            of_branches[branch] = found[runs]
        prompt.layout = prompt.layout.with_members(of_branches)

    def _lend(self, runs: Runs) -> tuple[Lease[int], Lease[Members | None]]:
        trie = self.trie(runs)
        has_choice = self._closed.max_fed and (trie.members != NULL_MEMBER).any()
        states = self._constraints.lend(_states(trie))
        return states, self._closed.lend(trie) if has_choice else Lease[Members | None](None)

    def trie(self, runs: Runs) -> MemberTrie:
        """Return the trie of all runs as answers, and null."""
        encoded = self._encoder.encode(_lines(runs_of(runs.lines)))
        rows = _apart(self._ended(encoded, runs.most_tokens), self._null)
        nulls = [self._null] if runs.nullable or not rows else []
        members = [*range(1, len(rows) + 1), *(NULL_MEMBER for _ in nulls)]
        trie = MemberTrie.of([*rows, *nulls], members)
        assert trie is not None, "spellings that can be told apart"
        return trie

    def as_it_stands(self, runs: Runs, text: str, raw: str, tokens: Sequence[int]) -> str:
        """Return the run that was chosen, as the document has it.

        `text` is that run, unless the tokenizer changes texts or a backslash can be read in two ways.

        Args:
            text: the parsed answer.
            raw, tokens: the answer before parsing.
        """
        if "\\" not in raw and any(text in line for line in runs.lines):
            return text
        texts = runs_of(runs.lines)
        encoded = self._ended(self._segments.encode_text(_lines(texts)), len(tokens))
        by_tokens = dict(zip(reversed(encoded), reversed(texts), strict=True))
        return by_tokens.get(tuple(tokens), text)

    def _ended(self, encoded: Sequence[Sequence[int]], most_tokens: int) -> list[tuple[int, ...]]:
        """Cut each line after the token that ends it; () for those of more than `most_tokens`."""
        if not encoded:
            return []
        encoded = [tokens[: most_tokens + 1] for tokens in encoded]  # one that is too long makes all rows so long
        lengths = self._endings.lengths(*token_grid(encoded), True)
        return [
            tuple(tokens[:length]) if length <= most_tokens else ()
            for tokens, length in zip(encoded, lengths.tolist(), strict=True)
        ]


def leased_branch(
    ids: Sequence[int],
    kind: ValueKind,
    max_tokens: int,
    constraints: Constraints | None,
    closed: ClosedAnswers | None,
    runs: RunTries | None,
    attribute: str | None = None,
) -> tuple[Branch, list[Lease[Any]]]:
    """Return the layout branch of a value, and the leases that keep its states and members in the tables.

    Without `constraints` the value is free, without `closed` it is decoded token by token.
    """
    if isinstance(kind, Verbatim) and runs is not None:
        return Branch(ids, runs.limit(max_tokens)), []
    if constraints is None:
        return Branch(ids, max_tokens), []
    state = constraints.lease(kind, attribute)
    if state.kept == FREE or closed is None:
        return Branch(ids, max_tokens, state.kept), [state]
    members = closed.lease(kind, attribute)
    # A member is known, however long it is.
    longest = members.kept.longest if members.kept else 0
    return Branch(ids, max(max_tokens, longest), state.kept, members.kept), [state, members]


def _lines(texts: Iterable[str]) -> list[str]:
    return [f" {spelled(text)},\n" for text in texts]


def _apart(rows: Iterable[tuple[int, ...]], null: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Sort rows, and drop those that begin with a kept one or with null, or that null begins with.

    A tokenizer may encode different texts alike."""
    found: list[tuple[int, ...]] = []
    for row in sorted(set(rows) - {()}):
        if row[: len(null)] == null[: len(row)] or (found and row[: len(found[-1])] == found[-1]):
            continue
        found.append(row)
    return found


def _states(trie: MemberTrie) -> TokenStates:
    """Return the trie as an automaton over tokens."""
    end = len(trie)
    return TokenStates(
        np.append(trie.offsets, len(trie.ids) + 1),
        np.append(trie.ids, trie.ids[0]),
        np.append(np.where(trie.behind >= 0, trie.behind, end), end),
    )


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
