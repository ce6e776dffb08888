"""Beginnings that documents have in common: a radix tree over their tokens. Pure functions, no tensors.

Sorted by their tokens, documents that begin alike are neighbours. The number of tokens that each has in common with the
one before it determines the tree:

    the brown fox jumps             the brown fox ──┬── jumps ── over
    the brown fox jumps over   4                    └── sleeps
    the brown fox sleeps       3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpd_core.layout import IntArray

_LEAST_LENGTH = 8
"""Tokens that a node has more than the one above it: all documents of a catalog begin with a few equal ones."""

_LEAST_SAVED = 16
"""Tokens that a node saves at least: its own are computed a step before those after them."""

_COPIED_FOR_SAVED = 16
"""Tokens of KV that can be copied in the time of computing one, at least: a node has a copy of all KV before it.

Measured with 135 million weights on a CPU, where copying is most expensive (docs/log.md)."""

_BYTES = 4
"""Bytes of a token id."""


@dataclass(eq=False, slots=True)
class SharedText:
    """A beginning that several documents have in common: a node of the tree.

    Attributes:
        parent: the next shorter one, which is a part of it.
        length: tokens, counted from the documents' first.
        members: all that begin with it, in the order of their tokens.
        num_waiting: number of them that have not begun to run.
        is_given_up: whether it did not fit in memory.
    """

    parent: SharedText | None
    length: int
    members: Sequence[Any]
    num_waiting: int = field(init=False)
    is_given_up: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.num_waiting = len(self.members)

    def or_above(self) -> SharedText | None:
        """Return itself, or the longest part of it that is not given up; None if all are."""
        text: SharedText | None = self
        while text is not None and text.is_given_up:
            text = text.parent
        return text


def shared_texts(members: Sequence[Any], documents: Sequence[IntArray], num_prefix_tokens: int) -> list[SharedText]:
    """Return the nodes that are worth computing once, each after its parent; in time linear in the texts (and sorting).

    Args:
        members: owners of the documents.
        documents: token ids of each, less than 2**32.
        num_prefix_tokens: number of tokens before all of them.
    """
    # Big-endian, so that bytes are in the order of the numbers.
    texts = [np.asarray(ids, dtype=">u4").tobytes() for ids in documents]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    ordered = [texts[number] for number in order]
    found: list[tuple[SharedText, int]] = []  # the nodes in which the next one may lie, and where they end
    nodes: list[SharedText] = []
    for length, first, stop in _intervals(ordered):
        while found and found[-1][1] <= first:
            found.pop()
        parent = found[-1][0] if found else None
        num_new = length - (parent.length if parent is not None else 0)
        if num_new >= _LEAST_LENGTH and _is_worth(num_new, stop - first, num_prefix_tokens + length):
            nodes.append(SharedText(parent, length, [members[number] for number in order[first:stop]]))
            found.append((nodes[-1], stop))
    return nodes


def _is_worth(num_new: int, num_members: int, num_copied: int) -> bool:
    return (num_members - 1) * num_new >= max(_LEAST_SAVED, num_copied // _COPIED_FOR_SAVED)


def _intervals(ordered: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return all (length, first, stop) of sorted texts: `first` to `stop` have `length` tokens in common, no neighbour
    has. Larger intervals come before those within them."""
    intervals: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = []  # (length, first), each longer than the one before it
    for number in range(1, len(ordered) + 1):
        length = _num_common(ordered[number - 1], ordered[number]) if number < len(ordered) else 0
        first = number - 1
        while open_ and open_[-1][0] > length:
            longer, first = open_.pop()
            intervals.append((longer, first, number))
        if length and (not open_ or open_[-1][0] < length):
            open_.append((length, first))
    return sorted(intervals, key=lambda interval: (interval[1], -interval[2]))


def _num_common(a: bytes, b: bytes) -> int:
    """Return the number of tokens with which both begin; 0 if less than `_LEAST_LENGTH`, without comparing them all."""
    if a[: _LEAST_LENGTH * _BYTES] != b[: _LEAST_LENGTH * _BYTES]:
        return 0
    size = min(len(a), len(b)) // _BYTES
    differ = np.frombuffer(a, dtype=np.uint32, count=size) != np.frombuffer(b, dtype=np.uint32, count=size)
    return int(differ.argmax()) if differ.any() else size
