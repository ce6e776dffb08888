"""Drafts: guesses of a value's next tokens, fed behind its last one and checked by the same forward (speculative
decoding).

A value feeds its last token and up to d drafted ones behind it. What the model chooses behind each of them says how
far the draft was right: that stretch is taken, and the model's own next token with it. So the tokens are the very
ones of greedy decoding, whatever was drafted; a good draft spares steps, a bad one costs the rows that it took.

    fed       "Nike   Air   Max   Shoes      the last token and a draft of three
    chosen     Air    Max   90    ,          behind each of them
    taken      Air    Max   90               "Shoes" was wrong, and so is what was chosen behind it

A draft holds no closing token: that is only ever the answer behind the row before it. Where drafts come from: many
values are a span of the document, so what stands there behind the last tokens of a value is what may come next
(prompt lookup decoding; ANPD, arXiv 2404.08698).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpd_core.decoding.cohort_input import ranks_within
from hpd_core.layout import FREE, IntArray
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings, Read

LONGEST_DRAFT = 4
"""Tokens: of longer drafts few more are right, and each wrong one costs a row."""

_LONGEST_MATCH = 3
_LEAST_SHARE = 0.25
"""Of the drafted tokens, that must be right, or drafting pauses."""
_WINDOW = 256
"""Drafted tokens over which that share is taken, about."""
_PAUSE = 64
"""Steps."""

DraftSource = Callable[[IntArray, IntArray, int], Sequence[int]]
"""(document, written, most): up to `most` tokens that may follow what a value has written. It need not be right."""


@dataclass(frozen=True, slots=True)
class OpenValue:
    """A value that may get a draft.

    Attributes:
        document: int64, the tokens of its prompt's document.
        written: int64, its own so far; at least one.
        state: what it may go on with (text/constraints.py).
        read: what has been read of it (text/endings.py).
        most: tokens that a draft of it may have.
    """

    document: IntArray
    written: IntArray
    state: int
    read: int
    most: int


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafted tokens of several values, in order of the values.

    Attributes:
        tokens: int64 [m]
        owners: int64 [m], the value of each, ascending; a value's tokens follow each other.
        states: int64 [m], what the value may go on with behind each.
    """

    tokens: IntArray
    owners: IntArray
    states: IntArray

    def behind(self, of_values: IntArray, of_drafts: IntArray) -> IntArray:
        """Row by row, as they are fed: each value's element, [n], and behind it those of the value's draft, [m]."""
        return np.insert(of_values, self.owners + 1, of_drafts) if len(of_drafts) else of_values


NO_DRAFTS = Drafts(*(np.zeros(0, dtype=np.int64) for _ in range(3)))


class Drafter:
    """Drafts for the steps of one decoder, within a budget and while they are right often enough."""

    def __init__(
        self,
        max_tokens: int,
        endings: Endings,
        constraints: StateTable | None = None,
        source: DraftSource | None = None,
    ) -> None:
        """Drafts fill steps up to `max_tokens`; 0: there are none. `endings`: what each id does."""
        self._max_tokens = max_tokens
        self._endings = endings
        self._constraints = constraints
        self._source = source or prompt_lookup
        self._right = self._drafted = 0.0
        self._pause = 0

    def room(self, num_tokens: int) -> int:
        """How many tokens may be drafted in a step that feeds `num_tokens` without. Call once a step."""
        room = max(0, self._max_tokens - num_tokens)
        if room and self._pause:
            self._pause -= 1
            return 0
        return room

    def propose(self, values: Sequence[OpenValue], room: int) -> Drafts:
        """At most `room` tokens, shared out evenly: all values' first ones go before the second ones."""
        drafts = [self._valid(value, self._source(value.document, value.written, value.most)) for value in values]
        lengths = np.array([len(draft) for draft in drafts], dtype=np.int64)
        if not lengths.sum():
            return NO_DRAFTS
        owners = np.repeat(np.arange(len(drafts)), lengths)
        depths = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kept = np.sort(np.argsort(depths, kind="stable")[:room])
        tokens, states = np.array([pair for draft in drafts for pair in draft], dtype=np.int64).T
        return Drafts(tokens[kept], owners[kept], states[kept])

    def _valid(self, value: OpenValue, draft: Sequence[int]) -> list[tuple[int, int]]:
        """The draft up to where it cannot be right, each token with the state behind it."""
        valid: list[tuple[int, int]] = []
        state, read = value.state, value.read
        for token in draft[: value.most]:
            if not 0 <= token < len(self._endings) or self._endings.closing[token]:
                break
            read = self._endings.behind[read, token]
            if read == Read.ENDED:
                break
            if state != FREE and self._constraints is not None:
                behind = self._constraints.behind(state, token)
                if behind is None:
                    break
                state = behind
            valid.append((int(token), state))
        return valid

    def learn(self, num_drafted: int, num_right: int) -> None:
        """Takes note of a step's drafts; pauses them for a while when too few were right."""
        if not num_drafted:
            return
        keep = 0.5 ** (num_drafted / _WINDOW)
        self._drafted = keep * self._drafted + num_drafted
        self._right = keep * self._right + num_right
        if self._drafted >= _WINDOW and self._right < _LEAST_SHARE * self._drafted:
            self._pause = _PAUSE
            self._right = self._drafted = 0.0


def prompt_lookup(document: IntArray, written: IntArray, most: int) -> Sequence[int]:
    """What stands in the document behind the last tokens that were written: three of them, else two, else one.

    A single token, a comma maybe, is evidence only where all its occurrences go on alike.
    """
    for size in range(min(_LONGEST_MATCH, len(written), len(document) - 1), 0, -1):
        starts = np.arange(len(document) - size)
        for back in range(size):  # the last token first
            starts = starts[document[starts + size - 1 - back] == written[-1 - back]]
        if len(starts):
            following = document[starts + size]
            if size == 1 and (following != following[0]).any():
                return []
            first = int(starts[0]) + size
            tokens: list[int] = document[first : first + most].tolist()
            return tokens
    return []


def count_accepted(fed: IntArray, owners: IntArray, chosen: IntArray, num_values: int) -> IntArray:
    """How many of each value's rows hold: the row of its last token, and those of the draft as far as it was right.

    Args:
        fed: int64 [n], the tokens of the rows, a value's last token and its draft behind it.
        owners: int64 [n], the value of each row, ascending, all of 0 to `num_values` - 1.
        chosen: int64 [n], the model's choice behind each row.

    Returns:
        int64 [num_values], 1 at least.
    """
    is_first = np.ones(len(fed), dtype=bool)
    is_first[1:] = owners[1:] != owners[:-1]
    wrong = ~is_first
    wrong[1:] &= fed[1:] != chosen[:-1]
    num_wrong = np.cumsum(wrong)
    holds = num_wrong == num_wrong[is_first][owners]
    return np.bincount(owners[holds], minlength=num_values)


@dataclass(frozen=True, slots=True)
class DraftVerdict:
    """What the model's choices say of the t rows of a step with drafts: n values' last tokens, and drafts behind them.

    Attributes:
        owners: int64 [t], the value of each row, ascending.
        depths: int64 [t], how far behind the value's last token each row is; from 1 on it is drafted.
        accepted: int64 [n], how many of a value's rows hold; 1 at least.
    """

    owners: IntArray
    depths: IntArray
    accepted: IntArray

    @classmethod
    def on(cls, fed: IntArray, owners: IntArray, chosen: IntArray) -> DraftVerdict:
        """As `count_accepted`, of all values that have rows."""
        accepted = count_accepted(fed, owners, chosen, int(owners[-1]) + 1)
        return cls(owners, ranks_within(owners), accepted)

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """bool [t]: what was chosen here is the drafted token behind."""
        right: npt.NDArray[np.bool_] = self.depths < self.accepted[self.owners] - 1
        return right

    @property
    def last(self) -> npt.NDArray[np.bool_]:
        """bool [t]: what was chosen here is the value's next token, the model's own. One row per value."""
        last: npt.NDArray[np.bool_] = self.depths == self.accepted[self.owners] - 1
        return last

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        """bool [t]: a drafted token that is not what the model chose, or that stands behind such."""
        wrong: npt.NDArray[np.bool_] = self.depths >= self.accepted[self.owners]
        return wrong
