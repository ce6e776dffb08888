"""Progress of each value of a cohort: all values of all prompts side by side in arrays, so that no Python runs per
token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpd_core.decoding.member_bounds import MemberBounds
from hpd_core.decoding.next_token import Chosen
from hpd_core.decoding.prompt import BranchEnd, Prompt
from hpd_core.layout import EVERYBODY, FREE, NO_NODE, PUBLIC, IntArray, Layout
from hpd_core.text.endings import Endings, Read, start_of

ValueIndex = tuple[IntArray, IntArray]
"""(rows, branches), int64 [n] each: n values, by prompt and then by branch. It indexes arrays of [P, B]."""

NO_VALUES: ValueIndex = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(slots=True)
class ValueStates:
    """Values of P prompts, B of each, where B is the most that a prompt has.

    Attributes:
        ends: int64 [P, B], the last token before each value, as a column of the prompt's own tokens; -1 if a prompt
            has fewer branches.
        end_positions: int64 [P, B], the position of that token: a value's k-th token stands at this + k.
        scopes, lasts: int64 [P, B], of the value's tokens.
        limits: int64 [P, B], the most tokens of the value.
        states: int64 [P, B], its constraint state (text/constraints.py).
        roots: int64 [P, B], root of the trie that it is to be chosen from; NO_NODE: none, or the choice is over.
        budgets: int64 [P, B], the most nodes that are still fed for that.
        rates: float64 [P, B], share of a member for a likelihood of 1; NaN: members share all that null does not have.
        fallbacks: int64 [P, B], the most tokens that are fed after that, if no member is found.
        is_scored: bool [P, B], whether its member is being chosen (decoding/scoring.py): nothing else is fed for it.
        read: uint8 [P, B], what has been read of it (text/endings.py).
        live: bool [P, B], whether it is decoded token by token.
        closed: bool [P, B], whether its last token closes it.
        counts: int64 [P, B], number of its tokens so far.
        tokens: int64 [P, B, longest limit]
        logprobs: float32 [P, B, longest limit], natural logarithms.
        sure: uint8 [P, B], whether its member is the likeliest (1) or may be (2); 0: it was not chosen.
        shares, margins: float64 [P, B], likewise, as in decoding/member_search.py.
        num_scored: int64 [P], number of nodes that were fed and are no part of an answer.
    """

    ends: IntArray
    end_positions: IntArray
    scopes: IntArray
    lasts: IntArray
    limits: IntArray
    states: IntArray
    roots: IntArray
    budgets: IntArray
    rates: npt.NDArray[np.float64]
    fallbacks: IntArray
    is_scored: npt.NDArray[np.bool_]
    read: npt.NDArray[np.uint8]
    live: npt.NDArray[np.bool_]
    closed: npt.NDArray[np.bool_]
    counts: IntArray
    tokens: IntArray
    logprobs: npt.NDArray[np.float32]
    sure: npt.NDArray[np.uint8]
    shares: npt.NDArray[np.float64]
    margins: npt.NDArray[np.float64]
    num_scored: IntArray

    @classmethod
    def of_prompts(cls, prompts: Sequence[Prompt]) -> ValueStates:
        """Create the values of prompts that have fed nothing yet."""
        shape = (len(prompts), max(1, *(prompt.layout.num_branches for prompt in prompts)))

        def padded(fill: int, pick: Callable[[Layout], IntArray]) -> IntArray:
            array = np.full(shape, fill, dtype=np.int64)
            for row, prompt in enumerate(prompts):
                array[row, : prompt.layout.num_branches] = pick(prompt.layout)
            return array

        before = np.array([prompt.num_tokens_before for prompt in prompts], dtype=np.int64)
        ends = padded(-1, lambda layout: layout.ends)
        ends = np.where(ends >= 0, ends - before[:, None], -1)
        scopes = padded(PUBLIC, lambda layout: layout.value_scopes)
        limits = padded(0, lambda layout: layout.max_new_tokens)
        states = padded(FREE, lambda layout: layout.states)
        read = np.where(states == FREE, start_of(False), start_of(True)).astype(np.uint8)
        read[scopes == PUBLIC] = Read.LINE  # a value that others see is written to the end of the line
        token_shape = (*shape, max(1, int(limits.max())))
        rates = np.full(shape, np.nan)
        for row, prompt in enumerate(prompts):
            for branch, runs in prompt.runs.items():
                rates[row, branch] = np.nan if runs.rate is None else runs.rate
        return cls(
            ends=ends,
            end_positions=padded(0, lambda layout: layout.positions[layout.ends]),
            scopes=scopes,
            lasts=padded(EVERYBODY, lambda layout: layout.lasts[layout.ends]),
            limits=limits,
            states=states,
            roots=padded(NO_NODE, lambda layout: layout.roots),
            budgets=padded(0, lambda layout: layout.max_fed),
            rates=rates,
            fallbacks=padded(0, lambda layout: layout.fallbacks),
            is_scored=np.zeros(shape, dtype=bool),
            read=read,
            live=ends >= 0,
            closed=np.zeros(shape, dtype=bool),
            counts=np.zeros(shape, dtype=np.int64),
            tokens=np.zeros(token_shape, dtype=np.int64),
            logprobs=np.zeros(token_shape, dtype=np.float32),
            sure=np.zeros(shape, dtype=np.uint8),
            shares=np.zeros(shape),
            margins=np.zeros(shape),
            num_scored=np.zeros(len(prompts), dtype=np.int64),
        )

    @classmethod
    def merge(cls, parts: Sequence[ValueStates]) -> ValueStates:
        """Concatenate the prompts of all parts."""
        return cls(*(_stack([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def rows(self, picked: IntArray) -> ValueStates:
        """Select prompts, in the order of `picked`."""
        return ValueStates(*(getattr(self, field.name)[picked] for field in fields(self)))

    # Which values, and what is fed of them.

    @property
    def num_live(self) -> IntArray:
        """Number of values that are decoded token by token, of each prompt, int64 [P]."""
        live: IntArray = (self.live & ~self.is_scored).sum(axis=1)
        return live

    @property
    def is_open(self) -> npt.NDArray[np.bool_]:
        """Whether each value is not finished, bool [P, B]."""
        return self.live | self.is_scored

    @property
    def num_left(self) -> IntArray:
        """Number of tokens by which each prompt's open values may still grow, nodes to feed included, int64 [P]."""
        of_values = np.where(self.roots == NO_NODE, self.limits - self.counts, self.budgets + self.fallbacks)
        left: IntArray = np.where(self.is_open, of_values, 0).sum(axis=1)
        return left

    def begun_by(self, first: int, stop: int) -> ValueIndex:
        """Return the values whose first token follows one of the own tokens `first` to `stop`."""
        return _index(np.nonzero((self.ends >= first) & (self.ends < stop)))

    def live_values(self) -> ValueIndex:
        """Return the values that are decoded token by token."""
        return _index(np.nonzero(self.live & ~self.is_scored))

    def last_tokens(self, at: ValueIndex) -> IntArray:
        """Return the last token of each, which is the one to feed, int64 [n]."""
        rows, branches = at
        last: IntArray = self.tokens[rows, branches, self.counts[at] - 1]
        return last

    def last_positions(self, at: ValueIndex) -> IntArray:
        """Return the position of the last token of each, int64 [n]."""
        return self.end_positions[at] + self.counts[at]

    # Results.

    def accept(self, at: ValueIndex, chosen: Chosen, endings: Endings) -> None:
        """Append the next token of each value, and end those that it closes or that reach their limits."""
        rows, branches = at
        counts = self.counts[at]
        self.tokens[rows, branches, counts] = chosen.tokens
        self.logprobs[rows, branches, counts] = chosen.logprobs
        self.counts[at] = counts + 1
        self.states[at] = chosen.states
        self.read[at], closed = endings.read(self.read[at], chosen.tokens)
        self.closed[at] = closed
        self.live[at] = ~closed & (counts + 1 < self.limits[at])

    def settle(
        self, at: ValueIndex, written: Sequence[tuple[IntArray, npt.NDArray[np.float64]]], verdicts: MemberBounds
    ) -> None:
        """End values with the chosen members: `written` has the tokens of each, and their log-probabilities."""
        for row, branch, (tokens, logprobs) in zip(*(indices.tolist() for indices in at), written, strict=True):
            self.tokens[row, branch, : len(tokens)] = tokens
            self.logprobs[row, branch, : len(tokens)] = logprobs
            self.counts[row, branch] = len(tokens)
        self.closed[at], self.live[at] = True, False
        self.sure[at] = np.where(verdicts.is_sure, 1, 2)
        self.shares[at], self.margins[at] = verdicts.shares, verdicts.margins

    def end_scoring(self, at: ValueIndex, num_others: IntArray) -> None:
        """End the choice among members, found or not. `num_others`: fed nodes that are no part of an answer."""
        self.is_scored[at], self.budgets[at], self.roots[at] = False, 0, NO_NODE
        np.add.at(self.num_scored, at[0], num_others)

    def write_back(self, row: int, prompt: Prompt) -> None:
        """Write a finished prompt's values into it."""
        prompt.num_scored_tokens = int(self.num_scored[row])
        prompt.ends = [self._end(row, branch) for branch in range(prompt.layout.num_branches)]

    def drop(self, rows: IntArray) -> None:
        """End the values of some prompts as they are, including those that have not begun."""
        self.ends[rows], self.roots[rows] = -1, NO_NODE
        self.live[rows] = self.is_scored[rows] = False

    def _end(self, row: int, branch: int) -> BranchEnd:
        at = row, branch
        written = slice(self.counts[at])
        tokens, logprobs = self.tokens[row, branch, written].tolist(), self.logprobs[row, branch, written].tolist()
        chosen: tuple[Literal["scored", "beam"] | None, ...] = (None, "scored", "beam")
        sure = int(self.sure[at])
        probability = float(self.shares[at]) if sure else math.exp(sum(logprobs))
        margin = float(self.margins[at]) if sure == 1 else None
        return BranchEnd(branch, tokens, logprobs, bool(self.closed[at]), chosen[sure], probability, margin)


def _stack(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Stack the rows of all `arrays`, padded with zeros (False) at the end of each axis but the first."""
    width = tuple(np.max([array.shape[1:] for array in arrays], axis=0)) if arrays[0].ndim > 1 else ()
    stacked = np.zeros((sum(len(array) for array in arrays), *width), dtype=arrays[0].dtype)
    first = 0
    for array in arrays:
        stacked[(slice(first, first + len(array)), *(slice(size) for size in array.shape[1:]))] = array
        first += len(array)
    return stacked


def _index(indices: tuple[Any, ...]) -> ValueIndex:
    return indices[0], indices[1]
