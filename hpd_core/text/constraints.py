"""Typed values: the tokens with which a number, a boolean or an enum may go on.

    automaton  over bytes: from the attribute's type alone (text/value_automata.py)
    compiled   over tokens: state -> the tokens that spell a way through the automaton, and the state behind each
               (text/token_states.py)

All compiled automata stand in one table whose states are numbered through, so that a step looks up the choices of all
its values at once. Ours, not a library's: compiling must cost microseconds a state (thousands of categories have
enums, an enum has thousands of values), and a step must not run Python per value.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layout import FREE, IntArray
from hpd_core.system.device import to_device
from hpd_core.text.automata import Automaton
from hpd_core.text.kind_automata import kind_automaton
from hpd_core.text.template import render_answer_line
from hpd_core.text.token_states import TokenBytes, TokenStates, compile_automaton
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_automata import value_automaton
from hpd_core.text.value_kinds import (
    Boolean,
    Integer,
    JsonString,
    ListOf,
    Number,
    OneOf,
    ValueKind,
    without_pattern,
)
from hpd_core.types import Attribute

logger = logging.getLogger(__name__)

_FEW = 256
"""Choices that are looked up one by one. What allows more, as a text does, allows nearly all as a rule."""
_FULL = "the memory for enums and patterns is full; start again, and ask with fewer different ones"
_MOST_WAYS = 2**21
"""Of one automaton, tokens at states: some hundred MB while it is made."""
_MOST_WAYS_IN_ALL = 2**25
"""Behind which no kind is constrained that was not before: half a GB."""
_NUMBER_LINES = (" 20,000,\n", " 1.250,5,\n", " 12,34,567,\n", " 1/2,\n", " 2.5e6,\n", ' "1,250.5",\n')


class StateTable:
    """Compiled automata, side by side; their states are numbered through.

    State s may go on with the tokens `ids[offsets[s] : offsets[s + 1]]`, each to the state in `behind` at the same
    place. One thread may add while another one reads the states that it knows.
    """

    def __init__(self) -> None:
        self._num_states, self._num_ways = 0, 0
        self._offsets = np.zeros(1024, dtype=np.int64)
        self._ids = np.zeros(8192, dtype=np.int64)
        self._behind = np.zeros(8192, dtype=np.int64)
        self._masks: dict[int, Tensor] = {}

    def add(self, states: TokenStates) -> int:
        """Adds an automaton. Returns the number of its state 0.

        Raises:
            ValueError: a state without tokens.
        """
        if not (np.diff(states.offsets) > 0).all():
            raise ValueError("a state of a constraint must allow some token")
        first, place = self._num_states, self._num_ways
        num_states, num_ways = first + len(states), place + len(states.ids)
        self._offsets = grown(self._offsets, num_states + 1)
        self._ids = grown(self._ids, num_ways)
        self._behind = grown(self._behind, num_ways)
        self._ids[place:num_ways] = states.ids
        self._behind[place:num_ways] = states.behind + first
        self._offsets[first : num_states + 1] = states.offsets + place
        self._num_states, self._num_ways = num_states, num_ways
        return first

    @property
    def num_ways(self) -> int:
        """Of all automata: 16 bytes each."""
        return self._num_ways

    def is_few(self, states: IntArray) -> npt.NDArray[np.bool_]:
        """Which of `states`, none of them FREE, to ask `choices` for; `masks` are for those with more."""
        few: npt.NDArray[np.bool_] = self._offsets[states + 1] - self._offsets[states] <= _FEW
        return few

    def choices(self, states: IntArray) -> tuple[IntArray, IntArray]:
        """What each state may go on with.

        Args:
            states: int64 [n], none of them FREE.

        Returns:
            (token ids, states behind them), int64 [n, widest]; the last choice of a state fills its row.
        """
        offsets, ids, behind = self._offsets, self._ids, self._behind
        first = offsets[states]
        counts = offsets[states + 1] - first
        places = first[:, None] + np.minimum(np.arange(int(counts.max())), counts[:, None] - 1)
        return ids[places], behind[places]

    def masks(self, states: IntArray, size: int, device: torch.device) -> Tensor:
        """The tokens that some states allow, bool [states, size], on a device.

        Args:
            size: of the vocabulary.
        """
        for state in states.tolist():
            if state not in self._masks:
                mask = np.zeros(size, dtype=np.bool_)
                mask[self._ids[self._offsets[state] : self._offsets[state + 1]]] = True
                self._masks[state] = to_device(mask, device)
        return torch.stack([self._masks[state] for state in states.tolist()])

    def behind_each(self, states: IntArray, tokens: IntArray) -> IntArray:
        """int64 [n], the states behind n tokens, each of which its state allows."""
        offsets, ids, behind = self._offsets, self._ids, self._behind
        found = np.empty_like(states)
        for state in np.unique(states):
            here, own = states == state, slice(offsets[state], offsets[state + 1])
            found[here] = behind[own][np.searchsorted(ids[own], tokens[here])]
        return found

    def behind(self, state: int, token: int) -> int | None:
        """The state behind one token; None if it is not allowed in `state`, which is not FREE."""
        offsets, ids, behind = self._offsets, self._ids, self._behind
        first, stop = int(offsets[state]), int(offsets[state + 1])
        place = first + int(np.searchsorted(ids[first:stop], token))
        return int(behind[place]) if place < stop and ids[place] == token else None


def grown(array: IntArray, size: int) -> IntArray:
    """`array` with room for `size`; a copy, so that a reader's array stays whole."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(size, 2 * len(array)) - len(array), dtype=np.int64)])


class Constraints:
    """The constraints of all attributes seen so far, for one tokenizer. Thread-safe; grows with the schemas."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """`vocab_size`: columns of the logits."""
        self.table = StateTable()
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._segments = SegmentTokenizer(tokenizer)
        self._tokens: TokenBytes | None = None
        self._starts: dict[Any, int] = {}
        self._lock = threading.Lock()

    def start(self, attribute: Attribute) -> int:
        """The state in which a value of `attribute` begins; FREE if it is not constrained.

        FREE, too, where the tokens of a right answer, as the tokenizer writes it, are no way through the automaton
        (a vocabulary without the letters, a tokenizer that changes its text): text/values.py judges those answers.
        """
        units = attribute.unit.names if attribute.unit else ()
        key = (attribute.type, attribute.multiple, tuple(attribute.vocabulary.spellings), units)
        with self._lock:
            if key not in self._starts:
                lines = [render_answer_line(attribute, items) for items in _examples(attribute)]
                if attribute.type == "number" and not attribute.multiple:
                    lines += _NUMBER_LINES
                self._starts[key] = self._compile(value_automaton(attribute), lines, attribute.name)
            return self._starts[key]

    def start_of(self, kind: ValueKind) -> int:
        """As `start`, of a value of this kind. FREE, too, where its automaton over tokens would be too large, or all
        that there are already take too much memory: kinds may come from strangers.

        Raises:
            PatternError: a pattern that cannot be decoded.
        """
        with self._lock:
            return self._start_of(kind)

    def _start_of(self, kind: ValueKind) -> int:
        key = kind_key(kind)
        if key not in self._starts:
            automaton = kind_automaton(kind)
            if self.table.num_ways > _MOST_WAYS_IN_ALL:
                logger.warning("values of a new %s are not constrained: %s", type(kind).__name__, _FULL)
                return FREE
            start = self._compile(automaton, kind_lines(kind), type(kind).__name__)
            text = without_pattern(kind)
            self._starts[key] = self._start_of(text) if start == FREE and text != kind else start
        return self._starts[key]

    def _compile(self, automaton: Automaton | None, lines: Sequence[str], name: str) -> int:
        """`lines`: answers that must be possible."""
        if automaton is None:
            return FREE
        self._tokens = self._tokens or TokenBytes(self._tokenizer, self._vocab_size)
        if automaton.num_wide_nodes * len(self._tokens.ids) > _MOST_WAYS:
            logger.warning("values of %r are not constrained: too many texts fit", name)
            return FREE
        states = compile_automaton(automaton, self._tokens)
        answers = self._segments.encode_text(lines)
        if states is None or not states.accepts(answers):
            logger.warning("values of %r are not constrained: the tokenizer cannot write them", name)
            return FREE
        return self.table.add(states)


def kind_key(kind: ValueKind) -> bytes:
    """What a kind is kept by: little memory, however long it is. Of equal kinds, as those of 1 and true are, it differs
    where their answers are written differently."""
    return blake2b(repr(kind).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def kind_lines(kind: ValueKind) -> list[str]:
    """Lines that hold values of a kind: of a closed one all, in their order; null is the last one."""
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
        case ListOf():
            texts = ["[]"]
        case _:
            texts = []
    return [f" {text},\n" for text in [*texts, *(["null"] if kind.nullable else [])]]


def _examples(attribute: Attribute) -> list[tuple[str, ...] | None]:
    """Answers that must be possible."""
    if attribute.type == "enum":
        return [None, *((label,) for label in attribute.labels)]
    items = ("true", "false") if attribute.type == "boolean" else ("0", "-7", "1234567890", "12.05")
    return [None, *((item,) for item in items), *([items] if attribute.multiple else [])]
