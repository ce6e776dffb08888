"""Automata over bytes: which bytes may be written next, and the node after each.

An automaton is built in `Nodes`: by hand if there are few nodes, as a trie of whole texts if there are many.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hpd_core.layout import IntArray

_DIGITS = b"0123456789"
_MANY_BYTES = 64


@dataclass(frozen=True, slots=True)
class Automaton:
    """Automaton over bytes: ways between nodes, one byte each. No two ways from a node have the same byte.

    Attributes:
        num_nodes: number of nodes, which are numbered from 0.
        start, end: nodes before the first byte and after the last one; no way leaves the end.
        sources, bytes_, targets: int64 [ways], ordered by source.
    """

    num_nodes: int
    start: int
    end: int
    sources: IntArray
    bytes_: IntArray
    targets: IntArray

    @property
    def num_wide_nodes(self) -> int:
        """Number of nodes at which almost any token may be written, because they allow more than 64 bytes."""
        return int((np.bincount(self.sources, minlength=self.num_nodes) > _MANY_BYTES).sum())


class Nodes(list[dict[int, int]]):
    """Builder of an automaton: for each node, the node after each byte."""

    def __init__(self) -> None:
        super().__init__()
        self._tries: list[tuple[int, list[bytes], int]] = []

    def new(self, ways: Mapping[int, int] | None = None) -> int:
        """Add a node. Return its number."""
        self.append(dict(ways or {}))
        return len(self) - 1

    def digits(self, start: int, end: int, zero: int | None = None) -> None:
        """Add a way to `end` for each digit; to `zero` for the digit 0, if given."""
        for digit in _DIGITS:
            self[start][digit] = zero if zero is not None and digit == ord("0") else end

    def spell(self, start: int, text: str, end: int) -> None:
        """Add a path that writes `text`, reusing existing ways. No text may be the beginning of another one."""
        *body, last = text.encode()
        node = start
        for byte in body:
            if byte not in self[node]:
                self[node][byte] = self.new()
            node = self[node][byte]
        self[node][last] = end

    def spell_each(self, start: int, texts: Iterable[str], end: int) -> None:
        """Add paths that write `texts`, from a node without other ways. No text may be the beginning of another."""
        self._tries.append((start, sorted({text.encode() for text in texts}), end))

    def automaton(self, start: int, end: int) -> Automaton:
        """Return the automaton as arrays: a trie of thousands of texts has about as many nodes as they have bytes."""
        ways = _Ways(len(self))
        for node, behind in enumerate(self):
            for byte, target in behind.items():
                ways.add(node, byte, target)
        for root, texts, behind_each in self._tries:
            ways.add_trie(root, texts, behind_each)
        return ways.automaton(start, end)


class _Ways:
    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._sources, self._bytes, self._targets = array("q"), array("B"), array("q")

    def add(self, source: int, byte: int, target: int) -> None:
        self._sources.append(source)
        self._bytes.append(byte)
        self._targets.append(target)

    def add_trie(self, root: int, texts: list[bytes], end: int) -> None:
        """Add a trie of `texts`, which are sorted, so that each shares its longest prefix with the one before it."""
        path, before = [root], b""  # of the text before: the node in front of each of its bytes
        for text in texts:
            depth = _common(before, text)
            new = range(self._num_nodes, self._num_nodes + len(text) - depth - 1)
            self._sources.append(path[depth])
            self._sources.extend(new)
            self._bytes.frombytes(text[depth:])
            self._targets.extend(new)
            self._targets.append(end)
            path[depth + 1 :] = new
            self._num_nodes, before = new.stop, text

    def automaton(self, start: int, end: int) -> Automaton:
        sources = np.array(self._sources, dtype=np.int64)
        order = np.argsort(sources, kind="stable")
        bytes_, targets = np.array(self._bytes, dtype=np.int64), np.array(self._targets, dtype=np.int64)
        return Automaton(self._num_nodes, start, end, sources[order], bytes_[order], targets[order])


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix, in bytes."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (byte, same) in pairs if byte != same), min(len(one), len(other)))
