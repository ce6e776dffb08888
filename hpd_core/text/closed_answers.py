"""Tries (text/member_tries.py) of closed kinds: their leases, and the lines they are made of."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hpd_core.layout import Members
from hpd_core.text.constraints import kind_key, kind_lines
from hpd_core.text.endings import Endings
from hpd_core.text.kind_automata import BOOLEAN_WORDS
from hpd_core.text.leases import Lease, Leases
from hpd_core.text.member_tries import NULL_MEMBER, MemberTrie, TrieTable
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import Boolean, OneOf, ValueKind, is_closed, spelled

logger = logging.getLogger(__name__)

_MOST_BYTES = 2**30
"""Maximum bytes of all tries. Above, tries of unused kinds are evicted; if none is left, new kinds get none."""
_MOST_KINDS = 2**14


class ClosedAnswers:
    """Tries of all closed kinds seen so far, for one tokenizer, as long as there is room.

    Thread-safe. Tries are compiled in the calling thread, without blocking others.
    """

    def __init__(self, tokenizer: Any, endings: Endings, max_fed: int) -> None:
        """Take `max_fed`, the maximum nodes fed per value (`EngineConfig.max_scored_tokens`); 0: no tries."""
        self.table = TrieTable()
        self.max_fed = max_fed
        self._segments = SegmentTokenizer(tokenizer)
        self._endings = endings
        self.leases: Leases[Members | None] = Leases(self._remove)

    def lease(self, kind: ValueKind, attribute: str | None = None) -> Lease[Members | None]:
        """Return a lease of the members that a value of this kind is chosen among; its trie stays with the lease.

        The members are None if it is decoded token by token: a kind that is not closed, or two of whose members have
        the same tokens. They are None as well if leased tries take too much memory, unless the kind is an
        attribute's (named for warnings): schemas are trusted.
        """
        if not self.max_fed or not is_closed(kind):
            return Lease(None)
        key = kind_key(kind)
        with self.leases.lock:
            if (found := self.leases.find(key)) is not None:
                return found
        trie = self._compile(closed_lines(kind), attribute or type(kind).__name__)
        with self.leases.lock:
            if (found := self.leases.find(key)) is not None:
                return found
            self.leases.make_room(self._has_room)
            if self.table.num_bytes > _MOST_BYTES and attribute is None:
                return Lease(None)
            return self.leases.put(key, self._added(trie))

    def lend(self, trie: MemberTrie) -> Lease[Members | None]:
        """Add a trie for one user only; it is removed after the end of its lease."""

        def add() -> tuple[Members | None, int]:
            before = self.table.num_bytes
            return self._added(trie), self.table.num_bytes - before

        return self.leases.lend(add)

    def _has_room(self) -> bool:
        return self.table.num_bytes <= _MOST_BYTES and len(self.leases) < _MOST_KINDS

    def _added(self, trie: MemberTrie | None) -> Members | None:
        if trie is None:
            return None
        return Members(self.table.add(trie), len(trie), min(self.max_fed, len(trie) - 1), trie.longest)

    def _remove(self, members: Members | None) -> None:
        if members is not None:
            self.table.remove(members.root)

    def _compile(self, spellings: Sequence[tuple[str, int]], name: str) -> MemberTrie | None:
        """Compile the trie of `spellings` (see `closed_lines`); None if the tokenizer does not tell them apart."""
        lines, members = zip(*spellings, strict=True)
        encoded = self._segments.encode_text(lines)
        trie = MemberTrie.of([tokens[: self._endings.length(tokens, True)] for tokens in encoded], members)
        if trie is None:
            logger.warning("values of %r are not scored: the tokenizer does not tell them apart", name)
        return trie


def closed_lines(kind: ValueKind) -> list[tuple[str, int]]:
    """Return every spelling of a closed kind as an answer line, with its member: 0 for null, then 1 on."""
    lines = kind_lines(kind)
    numbered = [(line, number) for number, line in enumerate(lines[: len(lines) - kind.nullable], start=1)]
    if isinstance(kind, Boolean):
        words = enumerate(BOOLEAN_WORDS.values(), start=1)
        numbered += [(f' "{word}",\n', member) for member, of_member in words for word in of_member]
    if isinstance(kind, OneOf):
        numbered += [(f" {spelled(text)},\n", number + 1) for text, number in kind.synonyms]
    return [*numbered, *((line, NULL_MEMBER) for line in lines[len(lines) - kind.nullable :])]
