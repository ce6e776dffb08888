"""Tries of tokens: the possible answers of a closed attribute (an enum, a boolean).

A *member* is a label, true or false, or null. A *spelling* is one way to write it: a label or its synonym, `true` or
"yes". Each spelling is the tokens of its answer line as training lays it out, up to the one that ends the value
(text/endings.py). The likelihood of a member is the sum over its spellings.

    node       0        1      2        3        4                    the key's end is node 0
    written         "  light  brown  ──",──▶  "light brown"
                    │      └────────",──▶  "light"
                    └──  dark  ──",──▶  "dark"
               └── null ──▶  null

Tries are compiled a whole vocabulary at a time, into one table with consecutive numbers of nodes and spellings. So a
step looks up those of all its values at once (as for constraints, text/constraints.py). Tries of schemas stay in the
table; others stay as long as they are in use.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from hpd_core.layout import FREE, NO_NODE, IntArray, Members
from hpd_core.system.leases import Lease, Leases, RangesInUse
from hpd_core.text.constraints import StateTable, grown, kind_key, kind_lines
from hpd_core.text.endings import Endings, token_grid
from hpd_core.text.grammars import Grammars, PatternError, is_by_grammar
from hpd_core.text.kind_automata import BOOLEAN_WORDS, Automaton, kind_automaton
from hpd_core.text.token_states import TokenBytes, TokenStates, compile_automaton, ranges
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import Boolean, OneOf, ValueKind, is_closed, spelled

NULL_MEMBER = 0


@dataclass(eq=False)
class TrieArrays:
    """Tries of n nodes, w ways and s spellings. Nodes are in preorder; a token that ends a value leads to none.

    Attributes:
        tokens, depths, lasts: int64 [n]: token that leads to each node, its depth, and the last node below it.
        runs: int64 [n], number of nodes fed with each: itself, and those after it up to the next choice.
        heights: int64 [n], number of nodes fed from each, itself included, to the end of its longest spelling.
        way_of, above: int64 [n], way that leads to each node, and the node above it; -1 for the root.
        offsets: int64 [n + 1]: a node has the ways `offsets[node]` up to `offsets[node + 1]`, ordered by token.
        ids, behind: int64 [w], token of each way, and the node after it; ~spelling if there is none.
        members: int64 [s], member of each spelling.
        ends, closings: int64 [s], last node of each spelling, and the token that ends it.
    """

    tokens: IntArray
    depths: IntArray
    lasts: IntArray
    runs: IntArray
    heights: IntArray
    way_of: IntArray
    above: IntArray
    offsets: IntArray
    ids: IntArray
    behind: IntArray
    members: IntArray
    ends: IntArray
    closings: IntArray

    def spelling(self, number: int) -> tuple[IntArray, IntArray]:
        """Return the tokens of a spelling, and the node after which each is written."""
        path = [int(self.ends[number])]
        while (above := int(self.above[path[-1]])) >= 0:
            path.append(above)
        nodes = np.array(path[::-1], dtype=np.int64)
        return np.append(self.tokens[nodes[1:]], self.closings[number]), nodes


class MemberTrie(TrieArrays):
    """One trie, whose root is node 0."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def longest(self) -> int:
        """Number of tokens of the longest spelling."""
        return int(self.depths[self.ends].max()) + 1

    @property
    def null(self) -> int:
        """First spelling of null; -1 if there is none."""
        found = np.nonzero(self.members == NULL_MEMBER)[0]
        return int(found[0]) if len(found) else -1

    def as_states(self) -> TokenStates:
        """Return the trie as an automaton over tokens."""
        end = len(self)
        return TokenStates(
            np.append(self.offsets, len(self.ids) + 1),
            np.append(self.ids, self.ids[0]),
            np.append(np.where(self.behind >= 0, self.behind, end), end),
        )

    @classmethod
    def of(cls, spellings: Sequence[Sequence[int]], members: Sequence[int]) -> MemberTrie | None:
        """Return the trie of spellings, given as tokens; `members` has the member of each.

        Return None if two members have the same spelling, or one spelling begins another: they cannot be told apart.
        """
        (grid, sizes), numbers = token_grid(spellings), np.array(members, dtype=np.int64)
        order = np.lexsort(grid.T[::-1])
        grid, sizes, numbers = grid[order], sizes[order], numbers[order]
        is_new = np.append(True, (grid[1:] != grid[:-1]).any(axis=1))
        if (numbers[1:] != numbers[:-1])[~is_new[1:]].any():
            return None
        return cls._of_sorted(grid[is_new], sizes[is_new], numbers[is_new])

    @classmethod
    def _of_sorted(cls, grid: IntArray, sizes: IntArray, members: IntArray) -> MemberTrie | None:
        """Build from `grid`, int64 [s, longest]: sorted, distinct spellings, padded with -1."""
        count, longest = grid.shape
        places = np.arange(longest)
        # Way (i, d) writes token d of spelling i, where no spelling before it begins so.
        differs = np.ones(grid.shape, dtype=bool)
        differs[1:] = np.logical_or.accumulate(grid[1:] != grid[:-1], axis=1)
        is_way = differs & (places < sizes[:, None])
        if _goes_on(differs, sizes):
            return None
        is_inner = is_way & (places < sizes[:, None] - 1)
        numbers = np.cumsum(is_inner).reshape(grid.shape) * is_inner
        here = np.maximum.accumulate(numbers, axis=0)  # the node behind token d of spelling i
        before = np.concatenate([np.zeros((count, 1), dtype=np.int64), here[:, :-1]], axis=1)
        num_nodes = int(is_inner.sum()) + 1

        rows, depths = np.nonzero(is_way)
        sources, ids = before[rows, depths], grid[rows, depths]
        behind = np.where(is_inner[rows, depths], numbers[rows, depths], ~rows)
        ways = np.lexsort((ids, sources))
        sources, ids, behind = sources[ways], ids[ways], behind[ways]
        offsets = np.searchsorted(sources, np.arange(num_nodes + 1))
        leads = np.nonzero(behind >= 0)[0]
        way_of = np.full(num_nodes, -1, dtype=np.int64)
        way_of[behind[leads]] = leads
        node_tokens = np.zeros(num_nodes, dtype=np.int64)
        node_tokens[behind[leads]] = ids[leads]
        node_depths, lasts = np.zeros(num_nodes, dtype=np.int64), np.full(num_nodes, num_nodes - 1)
        inner = np.nonzero(is_inner)
        node_depths[numbers[inner]] = inner[1] + 1
        # All nodes of the spellings up to the next one that begins otherwise are below it.
        until = np.append(1 + np.cumsum(is_inner.sum(axis=1)) - is_inner.sum(axis=1), num_nodes) - 1
        lasts[numbers[inner]] = until[_next_rows(differs)[inner]]
        is_token = places < sizes[:, None]
        heights = np.zeros(num_nodes, dtype=np.int64)
        np.maximum.at(heights, before[is_token], (sizes[:, None] - places)[is_token])
        return cls(
            tokens=node_tokens,
            depths=node_depths,
            lasts=lasts,
            runs=_runs(lasts, np.diff(offsets)),
            heights=heights,
            way_of=way_of,
            above=np.where(way_of >= 0, sources[way_of], -1),
            offsets=offsets,
            ids=ids,
            behind=behind,
            members=members,
            ends=before[np.arange(count), sizes - 1],
            closings=grid[np.arange(count), sizes - 1],
        )


def _goes_on(differs: npt.NDArray[np.bool_], sizes: IntArray) -> bool:
    """Return whether a spelling begins with all of the one before it."""
    last = sizes[:-1] - 1
    return bool((~differs[np.arange(1, len(differs)), last]).any())


def _next_rows(differs: npt.NDArray[np.bool_]) -> IntArray:
    """Return for each element the next row marked in `differs` at its column; the number of rows if there is none."""
    count, width = differs.shape
    rows = np.where(differs, np.arange(count)[:, None], count)
    behind = np.concatenate([rows[1:], np.full((1, width), count)])
    return np.minimum.accumulate(behind[::-1], axis=0)[::-1]


def _runs(lasts: IntArray, num_ways: IntArray) -> IntArray:
    nodes = np.arange(len(lasts))
    # The next node follows this one alone.
    is_passed = (num_ways == 1) & (lasts > nodes)
    stops = np.minimum.accumulate(np.where(is_passed, len(nodes), nodes)[::-1])[::-1]
    found: IntArray = stops - nodes + 1
    return found


@dataclass(frozen=True, slots=True)
class TriePlace:
    """Place of a trie in a table.

    Attributes:
        number: number of tries added before it.
        firsts, counts: first number and count of its nodes, ways and spellings, by these names (see `_SIZES`).
    """

    number: int
    firsts: Mapping[str, int]
    counts: Mapping[str, int]


class TrieTable(TrieArrays):
    """Table of tries, with consecutive numbers of nodes, ways and spellings.

    One thread may add and remove tries while another one reads those that it uses. There is unused room between
    and after the tries.

    Attributes:
        roots: int64 [n], root of each node.
        nulls: int64 [n], a spelling of null in the trie of each node, or -1 if there is none.
        num_bytes: size of the tries in use.
    """

    def __init__(self) -> None:
        self._in_use = {size: RangesInUse() for size in ("nodes", "ways", "spellings")}
        self._places: dict[int, TriePlace] = {}  # by their roots
        self._num_added = 0
        self.num_bytes = 0
        for name in _SIZES:
            setattr(self, name, np.zeros(1, dtype=np.int64))

    roots: IntArray
    nulls: IntArray

    def add(self, trie: MemberTrie) -> int:
        """Add a trie. Return the number of its root."""
        # Offsets are one more than nodes.
        counts = {"nodes": len(trie) + 1, "ways": len(trie.ids), "spellings": len(trie.members)}
        firsts = {size: self._in_use[size].take(count) for size, count in counts.items()}
        node, way, spelling = firsts.values()
        shifted = {
            "lasts": trie.lasts + node,
            "way_of": np.where(trie.way_of >= 0, trie.way_of + way, -1),
            "above": np.where(trie.above >= 0, trie.above + node, -1),
            "offsets": trie.offsets + way,
            "behind": np.where(trie.behind >= 0, trie.behind + node, trie.behind - spelling),
            "ends": trie.ends + node,
            "roots": np.full(len(trie), node),
            "nulls": np.full(len(trie), spelling + trie.null if trie.null >= 0 else -1),
        }
        place = TriePlace(self._num_added, firsts, counts)
        self.put(place, {name: shifted[name] if name in shifted else getattr(trie, name) for name in _SIZES})
        self._num_added += 1
        self.num_bytes += _bytes(place)
        self._places[node] = place
        return node

    def remove(self, root: int) -> None:
        """Remove the trie of this root; its numbers may be reused."""
        place = self._places.pop(root)
        for size, first in place.firsts.items():
            self._in_use[size].give_back(first, place.counts[size])
        self.num_bytes -= _bytes(place)

    def added_since(self, number: int) -> list[TriePlace]:
        """Return the places of the present tries whose `number` is at least `number`, in order of addition."""
        return [place for place in list(self._places.values()) if place.number >= number]

    def part(self, place: TriePlace) -> dict[str, IntArray]:
        """Return the arrays of a place, for `put` of another table."""
        return {name: getattr(self, name)[place.firsts[size] :][: place.counts[size]] for name, size in _SIZES.items()}

    def put(self, place: TriePlace, arrays: Mapping[str, IntArray]) -> None:
        """Write arrays to a place, overwriting what is there."""
        for name, size in _SIZES.items():
            first, items = place.firsts[size], arrays[name]
            array = grown(getattr(self, name), first + place.counts[size])
            array[first : first + len(items)] = items
            setattr(self, name, array)

    def ways(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the ways of some nodes, and for each the index of its node in `nodes`."""
        return ranges(self.offsets, nodes)

    def wanted(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the row and token pairs whose log-probability is needed: rows and token ids, int64 [m] each.

        Args:
            nodes: int64 [n], the node after which each row writes, or NO_NODE.
        """
        rows = np.nonzero(nodes != NO_NODE)[0]
        ways, parts = self.ways(nodes[rows])
        return rows[parts], self.ids[ways]

    def num_ways(self, nodes: IntArray) -> int:
        """Return the number of these pairs."""
        found = nodes[nodes != NO_NODE]
        return int((self.offsets[found + 1] - self.offsets[found]).sum())


_OF_NODES = ("tokens", "depths", "lasts", "runs", "heights", "way_of", "above", "offsets", "roots", "nulls")
_SIZES = {
    **dict.fromkeys(_OF_NODES, "nodes"),
    **dict.fromkeys(("ids", "behind"), "ways"),
    **dict.fromkeys(("members", "ends", "closings"), "spellings"),
}
"""Element type of each of a trie's arrays: nodes, ways or spellings; offsets have one element more."""


def _bytes(place: TriePlace) -> int:
    return 8 * sum(place.counts[size] for size in _SIZES.values())


logger = logging.getLogger(__name__)

_FULL = (
    "the memory for enums and patterns is full of those that are being decoded; ask with fewer different ones at once"
)
_MOST_WAYS = 2**21
"""Estimated ways of one automaton, above which it is not compiled: some hundred MB while it is built."""
_MOST_WAYS_IN_ALL, _MOST_BYTES = 2**25, 2**30
"""Maximum ways of all automata (half a GB), and bytes of all tries. Above, unused kinds are evicted; if none is left,
new ones are not constrained."""
_MOST_KINDS = 2**14

Entry = tuple[int, Members | None]
"""State in which a value of a kind begins, and the members that it is chosen among."""
_FREE: Entry = (FREE, None)


class KindTables:
    """Constraints and tries of all kinds seen so far, for one tokenizer, as long as there is room.

    Thread-safe. They are compiled in the calling thread, without blocking others.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, endings: Endings, max_fed: int) -> None:
        """Take the columns of the logits, and the maximum nodes fed per value (`EngineConfig.max_scored_tokens`)."""
        self.states, self.tries, self.max_fed = StateTable(), TrieTable(), max_fed
        self._tokenizer, self._vocab_size, self._endings = tokenizer, vocab_size, endings
        self._segments = SegmentTokenizer(tokenizer)
        self._grammars = Grammars(tokenizer, vocab_size)
        self._tokens: TokenBytes | None = None
        self._tokens_lock = Lock()
        self.leases: Leases[Entry] = Leases(self._remove)

    def lease(self, kind: ValueKind, attribute: str | None = None, *, is_scored: bool = True) -> Lease[Entry]:
        """Return a lease of the state and the members of this kind; they stay in the tables with the lease.

        The state is FREE if values are not constrained: the automaton does not accept a correct answer as the tokenizer
        writes it (a vocabulary without the letters, a tokenizer that changes its text), or over tokens it would be too
        large. Then text/values.py judges the answers. The members are None if a value is decoded token by token: not
        `is_scored`, a kind that is not closed, or two of whose members have the same tokens. Both are so as well if
        leased ones take too much memory, unless the kind is an attribute's (named for warnings): schemas are trusted.

        Raises:
            PatternError: a pattern, or a schema, that cannot be decoded.
        """
        if is_by_grammar(kind):
            matcher = self._grammars.matcher(kind)
            if matcher is None:
                return Lease(_FREE)
            return self.leases.lend(lambda: ((self.states.add_live(matcher), None), 2**16))
        is_scored = is_scored and self.max_fed > 0 and is_closed(kind)
        key, name = kind_key(kind) + bytes([is_scored]), attribute or type(kind).__name__
        with self.leases.lock:
            if (found := self.leases.find(key)) is not None:
                return found
        try:
            states = self._compile(kind_automaton(kind), kind_lines(kind), name)
        except UnicodeEncodeError as error:
            raise PatternError("half of a surrogate pair, which no text can hold: leave it out") from error
        trie = self._trie(closed_lines(kind), name) if is_scored and states is not None else None
        with self.leases.lock:
            if (found := self.leases.find(key)) is not None:
                return found
            self.leases.make_room(self._has_room)
            if not self._has_room(kinds=False) and attribute is None:
                logger.warning("values of a new %s are not constrained: %s", name, _FULL)
                return Lease(_FREE)
            return self.leases.put(key, (FREE if states is None else self.states.add(states), self._added(trie)))

    def lend(self, trie: MemberTrie, *, is_scored: bool) -> Lease[Entry]:
        """Add a trie, and itself as the constraint, for one user only; they are removed after the end of the lease."""

        def add() -> tuple[Entry, int]:
            before = self.tries.num_bytes
            states = trie.as_states()
            entry = self.states.add(states), self._added(trie if is_scored else None)
            return entry, self.tries.num_bytes - before + 16 * (len(states) + len(states.ids))

        return self.leases.lend(add)

    def _has_room(self, *, kinds: bool = True) -> bool:
        has_room = self.states.num_ways <= _MOST_WAYS_IN_ALL and self.tries.num_bytes <= _MOST_BYTES
        return has_room and (not kinds or len(self.leases) < _MOST_KINDS)

    def _added(self, trie: MemberTrie | None) -> Members | None:
        if trie is None:
            return None
        return Members(self.tries.add(trie), len(trie), min(self.max_fed, len(trie) - 1), trie.longest)

    def _remove(self, entry: Entry) -> None:
        state, members = entry
        if state != FREE:
            self.states.remove(state)
        if members is not None:
            self.tries.remove(members.root)

    def _compile(self, automaton: Automaton | None, lines: Sequence[str], name: str) -> TokenStates | None:
        """Compile an automaton; return None if it does not accept all of `lines`, or allows too many texts."""
        if automaton is None:
            return None
        with self._tokens_lock:
            tokens = self._tokens = self._tokens or TokenBytes(self._tokenizer, self._vocab_size)
        if automaton.num_wide_nodes * len(tokens.ids) > _MOST_WAYS:
            logger.warning("values of %r are not constrained: too many texts fit", name)
            return None
        states = compile_automaton(automaton, tokens)
        if states is None or not states.accepts(self._segments.encode_text(lines)):
            logger.warning("values of %r are not constrained: the tokenizer cannot write them", name)
            return None
        return states

    def _trie(self, spellings: Sequence[tuple[str, int]], name: str) -> MemberTrie | None:
        """Compile the trie of `spellings` (see `closed_lines`); None if the tokenizer does not tell them apart."""
        lines, members = zip(*spellings, strict=True)
        trie = MemberTrie.of(self._endings.ended(self._segments.encode_text(lines)), members)
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
