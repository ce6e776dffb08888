"""Automata over tokens as plain mappings, and back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from hpd_core.text.constraints import StateTable
from hpd_core.text.token_states import TokenStates


def state_behind(table: StateTable, state: int, token: int) -> int | None:
    """After one token; None where it is not allowed."""
    at = np.array([state]), np.array([token])
    return int(table.behind_each(*at)[0]) if table.allow(*at)[0] else None


def token_states(states: Sequence[Mapping[int, int]]) -> TokenStates:
    """Per state, the state behind each token."""
    offsets = np.cumsum([0, *map(len, states)])
    ways = [(token, ways[token]) for ways in states for token in sorted(ways)]
    ids, behind = np.array(ways, dtype=np.int64).reshape(-1, 2).T
    return TokenStates(offsets, ids, behind)


def as_mappings(states: TokenStates) -> list[dict[int, int]]:
    """Per state, the state behind each token."""
    pairs = list(zip(states.ids.tolist(), states.behind.tolist(), strict=True))
    bounds = states.offsets.tolist()
    return [dict(pairs[first:stop]) for first, stop in itertools.pairwise(bounds)]
