"""Random spellings and members, and what a made-up model says to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hpd_core.layout import IntArray
from hpd_core.text.member_tries import MemberTrie, TrieTable

CLOSING = 9
"""The token that ends every spelling and is in none before."""

Spellings = list[tuple[tuple[int, ...], int]]
"""The tokens of each, and its member."""


@st.composite
def vocabularies(draw: st.DrawFn, max_size: int = 40) -> Spellings:
    """Different spellings in any order, of few letters, so that many begin alike; some mean the same."""
    bodies = draw(
        st.lists(st.lists(st.integers(0, 3), max_size=5).map(tuple), min_size=1, max_size=max_size, unique=True)
    )
    members = draw(st.lists(st.integers(0, len(bodies)), min_size=len(bodies), max_size=len(bodies)))
    return [((*body, CLOSING), member) for body, member in zip(bodies, members, strict=True)]


def trie_of(spellings: Spellings) -> MemberTrie:
    tokens, members = zip(*spellings, strict=True)
    trie = MemberTrie.of(tokens, members)
    assert trie is not None
    return trie


class MadeUpModel:
    """Says to the tokens of a value how likely each next one is; `spread`: of the logits."""

    def __init__(self, seed: int, spread: float) -> None:
        self._seed, self._spread = seed, spread

    def logprobs(self, value: int, text: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        rng = np.random.default_rng([self._seed, value, *text])
        logits = self._spread * rng.standard_normal(CLOSING + 1)
        return logits - np.log(np.exp(logits).sum())

    def of(self, value: int, tokens: Sequence[int]) -> list[float]:
        """Of each of the tokens."""
        return [float(self.logprobs(value, tokens[:place])[token]) for place, token in enumerate(tokens)]

    def to_nodes(self, table: TrieTable, values: IntArray, nodes: IntArray) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Of all ways of nodes, as an engine has them."""
        rows, ids = table.wanted(nodes)
        found = []
        for row, token in zip(rows.tolist(), ids.tolist(), strict=True):
            node, text = int(nodes[row]), []
            while table.above[node] >= 0:
                text.insert(0, int(table.tokens[node]))
                node = int(table.above[node])
            found.append(self.logprobs(int(values[row]), text)[token])
        return np.array(found)
