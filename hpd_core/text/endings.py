"""Ends of values.

A value's line ends with the first token whose text holds a newline (paper, 4.3.4). The first JSON value of that line
is read (text/values.py). So a value that no other value sees ends earlier: with the first token after which
nothing can change the answer. The model does not decode the rest. The same holds for a string or list that is not JSON:
it is invalid at once, instead of truncated at K_max.

    "Velor",⏎       with the comma after a string or a list that is closed
    null,⏎          with the null, if it is one token (or a space and one)
    12,⏎  true,⏎    typed values (text/constraints.py): a number with the first token after its comma that is not a
                    digit ("20,000" goes on), a boolean with itself, as null

After a number or `true` of a free attribute, the rest of a text that the model forgot to quote may follow. It is
counted (`Value.num_dropped`), so such a line is decoded to its end.

Reading is an automaton over characters, compiled here to a table over tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hpd_core.layout import IntArray

NULL = "null"
_BOOLEANS = ("true", "false")


class Read(IntEnum):
    """State of reading a value."""

    NOTHING = 0
    NOTHING_TYPED = auto()
    """Nothing yet, of a value that has a constraint."""
    STRING = auto()
    STRING_ESCAPE = auto()
    LIST = auto()
    LIST_STRING = auto()
    LIST_ESCAPE = auto()
    LITERAL = auto()
    """Part of a word of a typed value, or of a number before its first digit."""
    NUMBER = auto()
    NUMBER_COMMA = auto()
    """Number and a comma, which ends it or begins its next group."""
    WHOLE = auto()
    """Closed string or list."""
    LINE = auto()
    """Anything else: the line is decoded to its end."""
    ENDED = auto()


Readings: TypeAlias = npt.NDArray[np.uint8]

_NUMBER_GOES_ON: Mapping[str, Read] = dict.fromkeys("0123456789", Read.NUMBER)
# Per state, the state after a character; "" stands for any other one.
_BEHIND: Mapping[Read, Mapping[str, Read]] = {
    Read.NOTHING: {" ": Read.NOTHING, '"': Read.STRING, "[": Read.LIST, "": Read.LINE},
    Read.NOTHING_TYPED: {
        " ": Read.NOTHING_TYPED,
        '"': Read.STRING,
        "[": Read.LIST,
        "{": Read.LINE,
        **_NUMBER_GOES_ON,
        "": Read.LITERAL,
    },
    Read.STRING: {"\\": Read.STRING_ESCAPE, '"': Read.WHOLE, "": Read.STRING},
    Read.STRING_ESCAPE: {"": Read.STRING},
    # A list in a list is not an answer; this automaton does not find its end.
    Read.LIST: {'"': Read.LIST_STRING, "]": Read.WHOLE, "[": Read.LINE, "{": Read.LINE, "": Read.LIST},
    Read.LIST_STRING: {"\\": Read.LIST_ESCAPE, '"': Read.LIST, "": Read.LIST_STRING},
    Read.LIST_ESCAPE: {"": Read.LIST_STRING},
    Read.LITERAL: {",": Read.ENDED, **_NUMBER_GOES_ON, "": Read.LITERAL},
    Read.NUMBER: {",": Read.NUMBER_COMMA, "": Read.NUMBER},
    Read.NUMBER_COMMA: {**_NUMBER_GOES_ON, "": Read.ENDED},
    Read.WHOLE: {" ": Read.WHOLE, ",": Read.ENDED, "": Read.LINE},
    Read.LINE: {"": Read.LINE},
    Read.ENDED: {"": Read.ENDED},
}
TELLING = frozenset(character for ways in _BEHIND.values() for character in ways if character.strip())
"""Characters that change the state in another way than a letter does, except the space."""


@dataclass(frozen=True)
class Endings:
    """Effect of each token of a vocabulary on the value that it is written into.

    Attributes:
        closing: bool [vocabulary], whether the token ends every value: its text holds a newline, or ends the text.
        behind: uint8 [states, vocabulary], state (`Read`) after the token of a value that no other value sees.
    """

    closing: npt.NDArray[np.bool_]
    behind: Readings

    @classmethod
    def of_texts(
        cls, size: int, telling: Mapping[int, str], silent: Iterable[int] = (), unsure: Sequence[int] = ()
    ) -> Endings:
        """Return the endings of a vocabulary in which all tokens except the given ones act like letters.

        Args:
            size: size of the vocabulary.
            telling: texts of the tokens that hold a newline, a character of `TELLING`, a word that is a value, or
                nothing but spaces.
            silent: tokens that write nothing into an answer.
            unsure: tokens whose text depends on their neighbours (a byte among bytes that are not UTF-8): after them
                the line is decoded to its end.
        """
        behind = np.repeat(np.array([behind_text(state, "x") for state in Read], dtype=np.uint8)[:, None], size, axis=1)
        for token, text in telling.items():
            behind[:, token] = [behind_text(state, text) for state in Read]
        for token in silent:
            behind[:, token] = list(Read)
        behind[: Read.ENDED, list(unsure)] = Read.LINE
        closing = np.zeros(size, dtype=bool)
        closing[[token for token, text in telling.items() if "\n" in text]] = True
        return cls(closing, behind)

    @classmethod
    def none(cls, size: int) -> Endings:
        """Return endings of a vocabulary in which no token ends a value."""
        return cls(np.zeros(size, dtype=bool), np.full((len(Read), size), Read.LINE, dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.closing)

    def also(self, tokens: Sequence[int]) -> Endings:
        """Return a copy in which these tokens end every value, too."""
        closing = self.closing.copy()
        closing[list(tokens)] = True
        return replace(self, closing=closing)

    def read(self, states: Readings, tokens: IntArray) -> tuple[Readings, npt.NDArray[np.bool_]]:
        """Return the states of values that no others see after one more token, and which of them end with it, bool."""
        behind = self.behind[states, tokens]
        return behind, self.closing[tokens] | (behind == Read.ENDED)

    def length(self, tokens: Sequence[int], is_typed: bool) -> int:
        """Return how many of these tokens are decoded for a value that no other value sees."""
        return int(self.lengths([tokens], is_typed)[0])

    def lengths(self, answers: Sequence[Sequence[int]], is_typed: bool) -> IntArray:
        """Return the `length` of n answers at once, int64 [n]."""
        grid, sizes = token_grid(answers)
        found, states = sizes.copy(), np.full(len(grid), start_of(is_typed), dtype=np.uint8)
        for place in range(grid.shape[1]):
            rows = np.nonzero((found == sizes) & (sizes > place))[0]
            states[rows], ends = self.read(states[rows], grid[rows, place])
            found[rows[ends]] = place + 1
        return found

    def ended(self, answers: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Cut answers, which have a constraint, after the token that ends each."""
        lengths = self.lengths(answers, True).tolist()
        return [tuple(tokens[:length]) for tokens, length in zip(answers, lengths, strict=True)]


def token_grid(answers: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Return answers as rows, int64 [n, longest], padded with -1, and the number of tokens of each, int64 [n]."""
    sizes = np.array([len(tokens) for tokens in answers], dtype=np.int64)
    grid = np.full((len(sizes), int(sizes.max(initial=0))), -1, dtype=np.int64)
    grid[np.arange(grid.shape[1]) < sizes[:, None]] = np.fromiter(chain.from_iterable(answers), dtype=np.int64)
    return grid, sizes


def start_of(is_typed: bool) -> Read:
    """Return the state of a value before its first token; `is_typed`: whether it has a constraint."""
    return Read.NOTHING_TYPED if is_typed else Read.NOTHING


def behind_text(state: Read, text: str) -> Read:
    """Return the state after a token that writes `text`."""
    word = text.strip(" ")
    is_first = state in (Read.NOTHING, Read.NOTHING_TYPED)
    if is_first and (word == NULL or (state == Read.NOTHING_TYPED and word in _BOOLEANS)):
        return Read.ENDED
    for character in text:
        ways = _BEHIND[state]
        state = ways.get(character, ways[""])
    return state


def is_telling(text: str) -> bool:
    """Return whether a token of this text has another effect than a letter."""
    word = text.strip(" ")
    return not word or word in (NULL, *_BOOLEANS) or "\n" in text or not TELLING.isdisjoint(text)
