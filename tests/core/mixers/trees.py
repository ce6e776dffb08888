"""Random trees of tokens behind a trunk."""

from __future__ import annotations

import numpy as np

from hpd_core.layout import IntArray


def random_parents(rng: np.random.Generator, size: int) -> list[int]:
    """The parent of each node, an earlier one; -1: it stands behind the trunk."""
    return [int(rng.integers(-1, node)) if node else -1 for node in range(size)]


def chain_to(node: int, parents: list[int]) -> list[int]:
    """From the root to a node."""
    chain = []
    while node >= 0:
        chain.append(node)
        node = parents[node]
    return chain[::-1]


def scopes_of(parents: list[int]) -> tuple[IntArray, IntArray]:
    """First and last scope of each node: numbered in preorder, seen up to the last of those below it."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    scopes, lasts = np.zeros((2, len(parents)), dtype=np.int64)
    number = 0

    def visit(node: int) -> None:
        nonlocal number
        scopes[node] = number
        number += 1
        for child in children.get(node, []):
            visit(child)
        lasts[node] = number - 1

    for root in children.get(-1, []):
        visit(root)
    return scopes, lasts
