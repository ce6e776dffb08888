"""Automata over bytes: which bytes may be written next, and where one is then.

One is put together in `Nodes`: by hand where there are few nodes, as a trie of whole texts where there are many.
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
    """Ways between nodes, by one byte each. Of a node no two ways have the same byte.

    Attributes:
        num_nodes: they are numbered from 0.
        start, end: the nodes of nothing written yet and of all written; no way leads on from the end.
        sources, bytes_, targets: int64 [ways], in the order of their sources.
    """

    num_nodes: int
    start: int
    end: int
    sources: IntArray
    bytes_: IntArray
    targets: IntArray

    @property
    def num_wide_nodes(self) -> int:
        """Nodes at which almost any token may be written: those where most bytes may."""
        return int((np.bincount(self.sources, minlength=self.num_nodes) > _MANY_BYTES).sum())


class Nodes(list[dict[int, int]]):
    """An automaton in the making: of each node the node behind each byte."""

    def __init__(self) -> None:
        super().__init__()
        self._tries: list[tuple[int, list[bytes], int]] = []

    def new(self, ways: Mapping[int, int] | None = None) -> int:
        """A node more; its number."""
        self.append(dict(ways or {}))
        return len(self) - 1

    def digits(self, start: int, end: int, zero: int | None = None) -> None:
        """A way by each digit; `zero`: where the 0 leads, if elsewhere."""
        for digit in _DIGITS:
            self[start][digit] = zero if zero is not None and digit == ord("0") else end

    def spell(self, start: int, text: str, end: int) -> None:
        """A way that writes `text`, along the ways that are there. No text may be the beginning of another one."""
        *body, last = text.encode()
        node = start
        for byte in body:
            if byte not in self[node]:
                self[node][byte] = self.new()
            node = self[node][byte]
        self[node][last] = end

    def spell_each(self, start: int, texts: Iterable[str], end: int) -> None:
        """Ways that write each of `texts`, from a node without other ways. No text may be the beginning of another."""
        self._tries.append((start, sorted({text.encode() for text in texts}), end))

    def automaton(self, start: int, end: int) -> Automaton:
        """All of it, as arrays: a trie of thousands of texts has as many nodes as they have letters."""
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
        """`texts`: sorted, so that what two have in common is what one has in common with the one before it."""
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
    """Of how many bytes their common beginning is."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (byte, same) in pairs if byte != same), min(len(one), len(other)))
