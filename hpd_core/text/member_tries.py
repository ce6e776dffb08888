"""What a closed attribute (an enum, a boolean) can be answered with, as tries of tokens.

A *member* is a label, true or false, or null; a *spelling* one way to write it: a label or its synonym, `true` or
"yes". Each spelling is the tokens of its answer line as training lays it out, up to the one that ends the value
(text/endings.py); the likelihood of a member is that of its spellings together.

    node       0        1      2        3        4                    the key's end is node 0
    written         "  light  brown  ──",──▶  "light brown"
                    │      └────────",──▶  "light"
                    └──  dark  ──",──▶  "dark"
               └── null ──▶  null

Tries are compiled a whole vocabulary at a time, and stand in one table whose nodes and spellings are numbered through,
so that a step looks up those of all its values at once (as constraints do, text/constraints.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpd_core.layout import NO_NODE, IntArray, Members
from hpd_core.text.constraints import grown, kind_key, kind_lines
from hpd_core.text.endings import Endings
from hpd_core.text.template import render_answer_line
from hpd_core.text.token_states import ranges
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_automata import BOOLEAN_WORDS
from hpd_core.text.value_kinds import Boolean, ValueKind, is_closed
from hpd_core.types import Attribute

logger = logging.getLogger(__name__)

NULL_MEMBER = 0
_MOST_SPELLED = 2**23
"""Tokens of all spellings, behind which no kind gets a trie that had none before: a GB."""


@dataclass(frozen=True, slots=True)
class MemberTrie:
    """A trie of n nodes, w ways and s spellings. Nodes are numbered in preorder; what ends a value leads to none.

    Attributes:
        tokens, depths, lasts: int64 [n]: the token that leads to each node, how many do, and the last node below it.
        runs: int64 [n], how many nodes are fed with each: it, and those behind it up to where there is a choice.
        heights: int64 [n], how many have to be fed to come from each, itself among them, to the end of every spelling.
        way_of, above: int64 [n], the way that leads to each, and from which node; -1 to the root.
        offsets: int64 [n + 1]: a node has the ways `offsets[node]` up to `offsets[node + 1]`, in the order of their
            tokens.
        ids, behind: int64 [w], their tokens, and the node behind each; ~spelling where there is none.
        members: int64 [s], what each spelling means.
        ends: int64 [s + 1]: spelling i has the tokens `spelled[ends[i] : ends[i + 1]]`, written at the nodes `path`.
        spelled, path: int64 [tokens of all spellings]
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
    spelled: IntArray
    path: IntArray

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest spelling."""
        return int(np.diff(self.ends).max())

    @classmethod
    def of(cls, spellings: Sequence[Sequence[int]], members: Sequence[int]) -> MemberTrie | None:
        """The trie of some spellings, as tokens, of the members whose numbers are `members`.

        None where two members are spelled alike, or one spelling is the beginning of another: they cannot be told.
        """
        pairs = {tuple(tokens): member for tokens, member in zip(spellings, members, strict=True)}
        if any(pairs[tuple(tokens)] != member for tokens, member in zip(spellings, members, strict=True)):
            return None
        sizes = np.array([len(tokens) for tokens in pairs], dtype=np.int64)
        grid = np.full((len(pairs), int(sizes.max())), -1, dtype=np.int64)
        for row, tokens in zip(grid, pairs, strict=True):
            row[: len(tokens)] = tokens
        order = np.lexsort(grid.T[::-1])
        return cls._of_sorted(grid[order], sizes[order], np.array(list(pairs.values()), dtype=np.int64)[order])

    @classmethod
    def _of_sorted(cls, grid: IntArray, sizes: IntArray, members: IntArray) -> MemberTrie | None:
        """`grid`: int64 [s, longest], in order, -1 behind the last token of each of different spellings."""
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
            ends=np.cumsum([0, *sizes]),
            spelled=grid[is_token],
            path=before[is_token],
        )


def _goes_on(differs: npt.NDArray[np.bool_], sizes: IntArray) -> bool:
    """Whether a spelling begins with all of the one before it."""
    last = sizes[:-1] - 1
    return bool((~differs[np.arange(1, len(differs)), last]).any())


def _next_rows(differs: npt.NDArray[np.bool_]) -> IntArray:
    """Of each place the next row that differs there; the number of rows where there is none."""
    count, width = differs.shape
    rows = np.where(differs, np.arange(count)[:, None], count)
    behind = np.concatenate([rows[1:], np.full((1, width), count)])
    return np.minimum.accumulate(behind[::-1], axis=0)[::-1]


def _runs(lasts: IntArray, num_ways: IntArray) -> IntArray:
    nodes = np.arange(len(lasts))
    # The next node is behind this one alone.
    is_passed = (num_ways == 1) & (lasts > nodes)
    stops = np.minimum.accumulate(np.where(is_passed, len(nodes), nodes)[::-1])[::-1]
    found: IntArray = stops - nodes + 1
    return found


class TrieTable:
    """Tries, side by side; their nodes, ways and spellings are numbered through.

    One thread may add while another one reads the tries that it knows: arrays are as `MemberTrie` has them, with room
    behind what is in use.

    Attributes:
        tries: all of them, in order.
        roots: int64 [n], the root of each node.
    """

    def __init__(self) -> None:
        self.tries: list[MemberTrie] = []
        self._counts = dict.fromkeys(("nodes", "ways", "spellings", "spelled"), 0)
        for name in (*_SIZES, "roots"):
            setattr(self, name, np.zeros(1, dtype=np.int64))

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
    spelled: IntArray
    path: IntArray
    roots: IntArray

    def add(self, trie: MemberTrie) -> int:
        """Adds a trie. Returns the number of its root."""
        node, way, spelling, spelled = self._counts.values()
        shifted = {
            "lasts": trie.lasts + node,
            "way_of": np.where(trie.way_of >= 0, trie.way_of + way, -1),
            "above": np.where(trie.above >= 0, trie.above + node, -1),
            "offsets": trie.offsets + way,
            "behind": np.where(trie.behind >= 0, trie.behind + node, trie.behind - spelling),
            "ends": trie.ends + spelled,
            "path": trie.path + node,
        }
        self._put("roots", node, np.full(len(trie), node))
        for name, size in _SIZES.items():
            self._put(name, self._counts[size], shifted.get(name, getattr(trie, name)))
        sizes = (len(trie), len(trie.ids), len(trie.members), len(trie.spelled))
        self._counts = {size: self._counts[size] + more for size, more in zip(self._counts, sizes, strict=True)}
        self.tries.append(trie)
        return node

    @property
    def num_spelled(self) -> int:
        """Tokens of all spellings."""
        return self._counts["spelled"]

    def _put(self, name: str, first: int, items: IntArray) -> None:
        array = grown(getattr(self, name), first + len(items))
        array[first : first + len(items)] = items
        setattr(self, name, array)

    def ways(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """What is written behind some nodes: the ways of all, and for each the number in `nodes` that it is of."""
        return ranges(self.offsets, nodes)

    def wanted(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Whose log-probability is wanted behind each of n rows: int64 [m] each, rows and token ids.

        Args:
            nodes: int64 [n], the node that each row writes behind, or NO_NODE.
        """
        rows = np.nonzero(nodes != NO_NODE)[0]
        ways, parts = self.ways(nodes[rows])
        return rows[parts], self.ids[ways]

    def num_ways(self, nodes: IntArray) -> int:
        """How many that are."""
        found = nodes[nodes != NO_NODE]
        return int((self.offsets[found + 1] - self.offsets[found]).sum())


_SIZES = {
    **dict.fromkeys(("tokens", "depths", "lasts", "runs", "heights", "way_of", "above", "offsets"), "nodes"),
    **dict.fromkeys(("ids", "behind"), "ways"),
    **dict.fromkeys(("members", "ends"), "spellings"),
    **dict.fromkeys(("spelled", "path"), "spelled"),
}
"""Of a trie's arrays, what they have an element for; offsets and ends have one more."""


class ClosedAnswers:
    """The tries of all closed attributes seen so far, for one tokenizer. Grows with the schemas.

    Thread-safe. What is compiled is compiled in the thread that asks, and holds up no other one.
    """

    def __init__(self, tokenizer: Any, endings: Endings, max_fed: int) -> None:
        """`max_fed`: of each value, the most nodes that are fed (`EngineConfig.max_scored_tokens`); 0: no tries."""
        self.table = TrieTable()
        self._segments = SegmentTokenizer(tokenizer)
        self._endings = endings
        self._max_fed = max_fed
        self._found: dict[Any, tuple[Members, int] | None] = {}
        self._lock = threading.Lock()

    def members(self, attribute: Attribute) -> tuple[Members, int] | None:
        """What a value of `attribute` is chosen among, and the tokens of the longest; None: it is decoded by tokens.

        That is for texts, numbers and lists, and where two members are the same tokens.
        """
        if not self._max_fed or not attribute.is_closed:
            return None
        key = (attribute.type, tuple(attribute.vocabulary.spellings.items()))
        if key not in self._found:
            self._put(key, self._compile(answer_lines(attribute), attribute.name))
        return self._found[key]

    def members_of(self, kind: ValueKind) -> tuple[Members, int] | None:
        """As `members`, of a value of this kind. None, too, where there are too many tries already: kinds may come from
        strangers."""
        if not self._max_fed or not is_closed(kind):
            return None
        key = kind_key(kind)
        if key not in self._found:
            if self.table.num_spelled > _MOST_SPELLED:
                return None
            self._put(key, self._compile(closed_lines(kind), type(kind).__name__))
        return self._found[key]

    def _put(self, key: Any, trie: MemberTrie | None) -> None:
        """Adds what was compiled, unless another thread has done so meanwhile."""
        with self._lock:
            if key not in self._found:
                self._found[key] = None if trie is None else (self._members(trie), trie.longest)

    def _members(self, trie: MemberTrie) -> Members:
        return Members(self.table.add(trie), len(trie), min(self._max_fed, len(trie) - 1))

    def _compile(self, spellings: Sequence[tuple[str, int]], name: str) -> MemberTrie | None:
        """`spellings`: as `answer_lines` has them."""
        lines, members = zip(*spellings, strict=True)
        encoded = self._segments.encode_text(lines)
        trie = MemberTrie.of([tokens[: self._endings.length(tokens, True)] for tokens in encoded], members)
        if trie is None:
            logger.warning("values of %r are not scored: the tokenizer does not tell them apart", name)
        return trie


def closed_lines(kind: ValueKind) -> list[tuple[str, int]]:
    """As `answer_lines`, of a closed kind."""
    lines = kind_lines(kind)
    numbered = [(line, number) for number, line in enumerate(lines[: len(lines) - kind.nullable], start=1)]
    if isinstance(kind, Boolean):
        words = enumerate(BOOLEAN_WORDS.values(), start=1)
        numbered += [(f' "{word}",\n', member) for member, of_member in words for word in of_member]
    return [*numbered, *((line, NULL_MEMBER) for line in lines[len(lines) - kind.nullable :])]


def answer_lines(attribute: Attribute) -> list[tuple[str, int]]:
    """Every spelling of a closed attribute as a line of an answer, and its member: 0 for null, then from 1 on."""
    lines = [(render_answer_line(attribute, None), NULL_MEMBER)]
    if attribute.type == "boolean":
        for member, item in enumerate(("true", "false"), start=1):
            lines.append((render_answer_line(attribute, (item,)), member))
            lines += [(f' "{word}",\n', member) for word in BOOLEAN_WORDS[item]]
        return lines
    numbers = {label: member for member, label in enumerate(attribute.labels, start=1)}
    spellings = attribute.vocabulary.spellings.items()
    return lines + [(render_answer_line(attribute, (text,)), numbers[label]) for text, label in spellings]
