"""Regular expressions as automata over bytes, built by outlines-core (in the syntax of Rust's library).

This module adds the meaning of a pattern in JSON Schema, and refuses patterns that would take minutes. A pattern is
searched for: `^` and `$` at the ends of its alternatives anchor it. `\\d` and `\\w` are those of ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import regex
from outlines_core import Index, Vocabulary

from hpd_core.text.pattern_syntax import PatternError, read_pattern

_END = 256  # not a byte: the token that outlines-core asks for after a match
_LAST = 0
_LARGEST_RISK = 10
_LARGEST_RISK_OF_LETTERS = 5
_LARGEST_SIZE = 1000
_MOST_WAYS = 200_000
_KEPT = 16
"""Maximum number of cached automata, each of some MB at most."""


@dataclass(frozen=True, slots=True)
class ByteDfa:
    """Deterministic automaton: from state `start`, `ways[state][byte]` is the next state.

    The bytes written match when a state of `finals` is reached.
    """

    start: int
    finals: frozenset[int]
    ways: Mapping[int, Mapping[int, int]]


@lru_cache(maxsize=1)
def _bytes() -> Vocabulary:
    return Vocabulary(_END, {bytes([byte]): [byte] for byte in range(_END)})


@lru_cache(maxsize=_KEPT)
def full_match(expression: str) -> ByteDfa:
    """Return the automaton of the texts that an expression, in the syntax of Rust's library, fully matches.

    Texts that contain the character 0 are excluded.

    Raises:
        PatternError: the expression is not valid.
    """
    try:
        # Rust's library prefers: `a|ab` ends with "a". After a last character nothing is left to prefer.
        index = Index(f"(?:{expression})\\x00", _bytes())
    except ValueError as error:
        raise PatternError(f"it is no regular expression that can be decoded: {error}") from error
    ended, found = index.get_final_states(), index.get_transitions()
    ways = {
        state: {byte: target for byte, target in ways.items() if byte not in (_LAST, _END)}
        for state, ways in found.items()
    }
    finals = frozenset(state for state, ways in found.items() if ways.get(_LAST) in ended)
    return ByteDfa(index.get_initial_state(), finals, ways)


@lru_cache(maxsize=_KEPT)
def pattern_dfa(pattern: str) -> ByteDfa | None:
    """Return the automaton of all texts in which a user's pattern is found; None if it would be too large.

    Raises:
        PatternError: it is not a regular expression, or has something that no automaton can do.
    """
    read = read_pattern(pattern)
    try:
        regex.compile(pattern)  # only now: it writes repetitions out, however many
    except regex.error as error:
        raise PatternError(f"it is no regular expression: {error}") from error
    if read.size > _LARGEST_SIZE or read.risk > (_LARGEST_RISK_OF_LETTERS if read.has_letters else _LARGEST_RISK):
        return None
    # Without the cache: automata that are too large are not kept.
    dfa = full_match.__wrapped__(read.expression)
    return dfa if sum(map(len, dfa.ways.values())) <= _MOST_WAYS else None
