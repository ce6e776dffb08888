"""Constraints of typed values: the tokens with which a number, a boolean or an enum may continue.

    automaton  over bytes: of a kind of value (text/kind_automata.py)
    compiled   over tokens: state -> the tokens that spell a way through the automaton, and the state after each
               (text/token_states.py)
    grammar    of patterns and of any JSON: no table, but a matcher for each kind (text/grammars.py)

All compiled automata are in one table with consecutive state numbers, so that a step looks up the choices of all its
values at once. No library is used: compiling must cost microseconds a state, because thousands of categories have
enums with thousands of values. And a step must not run Python per value.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.system.device import to_device
from hpd_core.system.leases import RangesInUse
from hpd_core.text.grammars import FIRST_LIVE, LiveGrammar, SharedMatcher
from hpd_core.text.token_states import TokenStates
from hpd_core.text.value_kinds import (
    Boolean,
    Integer,
    JsonString,
    ListOf,
    Number,
    OneOf,
    ValueKind,
)

_FEW = 256
"""Maximum choices of a state that are looked up one by one. States with more mostly allow nearly all tokens."""
_MOST_MASKED = 2**28
"""Maximum bytes of masks, one byte per token of the vocabulary. Above, all masks are dropped and rebuilt on demand:
long patterns have thousands of states."""
_NUMBER_LINES = (" 20,000,\n", " 1.250,5,\n", " 12,34,567,\n", " 1/2,\n", " 2.5e6,\n", ' "1,250.5",\n')


class StateTable:
    """Table of compiled automata, with consecutive state numbers.

    State s allows the tokens `ids[firsts[s] : firsts[s] + counts[s]]`, each leading to the state in `behind` at the
    same index. One thread may add and remove automata while another one reads the states that it uses.
    """

    def __init__(self) -> None:
        self._states, self._ways = RangesInUse(), RangesInUse()
        self._firsts = np.zeros(1024, dtype=np.int64)
        self._counts = np.zeros(1024, dtype=np.int64)
        self._ids = np.zeros(8192, dtype=np.int64)
        self._behind = np.zeros(8192, dtype=np.int64)
        self._sizes: dict[int, tuple[int, int]] = {}  # by an automaton's first state: its states and ways
        self._masks: dict[int, Tensor] = {}
        self._live: dict[int, LiveGrammar] = {}  # by both of its states
        self._next_live = FIRST_LIVE
        self.num_ways = 0
        """Number of ways of all automata: 16 bytes each."""

    def add(self, states: TokenStates) -> int:
        """Add an automaton. Return the number of its state 0.

        Raises:
            ValueError: a state without tokens.
        """
        if not (np.diff(states.offsets) > 0).all():
            raise ValueError("a state of a constraint must allow some token")
        first, place = self._states.take(len(states)), self._ways.take(len(states.ids))
        last, stop = first + len(states), place + len(states.ids)
        self._firsts, self._counts = grown(self._firsts, last), grown(self._counts, last)
        self._ids, self._behind = grown(self._ids, stop), grown(self._behind, stop)
        self._ids[place:stop] = states.ids
        self._behind[place:stop] = states.behind + first
        self._firsts[first:last] = states.offsets[:-1] + place
        self._counts[first:last] = np.diff(states.offsets)
        self._sizes[first] = len(states), len(states.ids)
        self.num_ways += len(states.ids)
        return first

    def add_live(self, matcher: SharedMatcher) -> int:
        """Add the grammar of one value. Return the number of its first state."""
        first, self._next_live = self._next_live, self._next_live + 2
        self._live[first] = self._live[first + 1] = LiveGrammar(first, matcher)
        return first

    def remove(self, first: int) -> None:
        """Remove the automaton or grammar whose first state has this number; an automaton's numbers may be reused."""
        if first >= FIRST_LIVE:
            del self._live[first], self._live[first + 1]
            return
        num_states, num_ways = self._sizes.pop(first)
        for state in range(first, first + num_states):
            self._masks.pop(state, None)
        self._ways.give_back(int(self._firsts[first]), num_ways)
        self._states.give_back(first, num_states)
        self.num_ways -= num_ways

    def is_few(self, states: IntArray) -> npt.NDArray[np.bool_]:
        """Return which of `states`, none of them FREE, `choices` is for, bool [n]; use `masks` for the others."""
        is_compiled = states < FIRST_LIVE
        few: npt.NDArray[np.bool_] = is_compiled & (self._counts[np.where(is_compiled, states, 0)] <= _FEW)
        return few

    def choices(self, states: IntArray) -> tuple[IntArray, IntArray]:
        """Return the tokens that each state allows.

        Args:
            states: int64 [n], none of them FREE.

        Returns:
            (token ids, states after them), int64 [n, widest]; rows are padded with the state's last choice.
        """
        ids, behind, counts = self._ids, self._behind, self._counts[states]
        places = self._firsts[states][:, None] + np.minimum(np.arange(int(counts.max())), counts[:, None] - 1)
        return ids[places], behind[places]

    def masks(self, states: IntArray, size: int, device: torch.device) -> Tensor:
        """Return the masks of tokens that some states allow, bool [states, size], on a device.

        Args:
            size: size of the vocabulary.
        """
        if len(self._masks) * size > _MOST_MASKED:
            self._masks.clear()
        return torch.stack([self._mask(state, size, device) for state in states.tolist()])

    def _mask(self, state: int, size: int, device: torch.device) -> Tensor:
        if state in self._live:
            return to_device(self._live[state].mask(state, size), device)
        found = self._masks.get(state)
        if found is None:
            mask = np.zeros(size, dtype=np.bool_)
            mask[self._ids[self._own(state)]] = True
            found = self._masks[state] = to_device(mask, device)
        return found

    def allow(self, states: IntArray, tokens: IntArray) -> npt.NDArray[np.bool_]:
        """Return whether each of n states, none of them FREE, allows its token, bool [n]."""
        ids, found = self._ids, np.zeros(len(states), dtype=np.bool_)
        for state in np.unique(states):
            here = states == state
            if state in self._live:
                found[here] = self._live[state].allows(state, int(tokens[here][0]))
                continue
            own = ids[self._own(state)]
            places = np.minimum(np.searchsorted(own, tokens[here]), len(own) - 1)
            found[here] = own[places] == tokens[here]
        return found

    def behind_each(self, states: IntArray, tokens: IntArray) -> IntArray:
        """Return the states after n tokens, each allowed by its state, int64 [n]."""
        ids, behind = self._ids, self._behind
        found = np.empty_like(states)
        for state in np.unique(states):
            here = states == state
            if state in self._live:
                found[here] = self._live[state].behind(state, int(tokens[here][0]))
                continue
            own = self._own(state)
            found[here] = behind[own][np.searchsorted(ids[own], tokens[here])]
        return found

    def _own(self, state: int) -> slice:
        """Return the slice of a state's ways."""
        first = int(self._firsts[state])
        return slice(first, first + int(self._counts[state]))


def grown(array: IntArray, size: int) -> IntArray:
    """Return `array` with room for `size`; a copy if it has to grow, so that a reader's array stays intact."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(size, 2 * len(array)) - len(array), dtype=np.int64)])


def kind_key(kind: ValueKind) -> bytes:
    """Return the key of a kind: a short digest.

    Kinds that are equal in Python, such as those of 1 and true, have different keys if their answers are written
    differently. Lists that differ only in `most` have the same key.
    """
    kind = replace(kind, most=None) if isinstance(kind, ListOf) else kind
    return blake2b(repr(kind).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def kind_lines(kind: ValueKind) -> list[str]:
    """Return answer lines of a kind: all, in order, if it is closed, else examples; null, if allowed, comes last."""
    match kind:
        case OneOf():
            texts = kind.spellings
        case Boolean():
            texts = ["true", "false"]
        case JsonString():
            texts = ['"a"', r'"\"L\XL\" \u00e9 \ud83d\ude00"']
        case Number():
            texts = [line[1:-2] for line in _NUMBER_LINES] + ["0", "-7", "1234567890", "12.05"]
        case Integer():
            texts = ["0", "-7", "1234567890", "20,000"]
        case ListOf(item=OneOf() as item):
            texts = ["[]", *(f"[{text}]" for text in item.spellings)]
        case ListOf():
            texts = ["[]"]
        case _:
            texts = []
    return [f" {text},\n" for text in [*texts, *(["null"] if kind.nullable else [])]]
