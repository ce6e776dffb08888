"""Plan of one cohort's tokens of a step: which continue a trunk, which come after one, and who their ancestors are.

It is made once a step, for all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layout import EVERYBODY, PUBLIC, IntArray, visible
from hpd_core.system.device import to_device


@dataclass(frozen=True, slots=True)
class TokenGrid:
    """Tokens of several prompts as a rectangle: a row for each prompt, padded after its last token.

    Attributes:
        prompts: int64 [P'], the prompt of each row.
        rows: int64 [P', R], of the packed row; padding repeats a row.
        is_token: bool [P', R], False for padding.
        flat: int64 [t], the place of each token in the rectangle, row by row.
        packed: int64 [t], its place in the packed row.
        span: the prompts as a slice, if they are neighbours.
    """

    prompts: Tensor
    rows: Tensor
    is_token: Tensor
    flat: Tensor
    packed: Tensor
    span: slice | None

    @classmethod
    def of(cls, rows: IntArray, prompts: IntArray, device: torch.device) -> TokenGrid:
        """Return the grid of the tokens `rows` of the prompts `prompts` (ascending)."""
        picked, places, counts = np.unique(prompts, return_inverse=True, return_counts=True)
        ranks = np.arange(len(rows)) - (np.cumsum(counts) - counts)[places]
        shape = len(picked), int(counts.max())
        grid, is_token = np.full(shape, rows[0]), np.zeros(shape, dtype=bool)
        grid[places, ranks], is_token[places, ranks] = rows, True
        first, stop = int(picked[0]), int(picked[-1]) + 1
        span = slice(first, stop) if stop - first == len(picked) else None
        put = partial(to_device, device=device)
        return cls(put(picked), put(grid), put(is_token), put(places * shape[1] + ranks), put(rows), span)

    def of_prompts(self, tensor: Tensor) -> Tensor:
        """Pick these prompts: [P, ...] -> [P', ...], as a view if possible, because states are large."""
        return tensor.index_select(0, self.prompts) if self.span is None else tensor[self.span]

    def take(self, tokens: Tensor) -> Tensor:
        """Gather tokens: [T, ...] -> [P', R, ...], padding 0."""
        taken = tokens.index_select(0, self.rows.flatten()).view(*self.rows.shape, *tokens.shape[1:])
        return taken.masked_fill_(~self.is_token.view(*self.rows.shape, *[1] * (tokens.dim() - 1)), 0)

    def put(self, found: Tensor, out: Tensor) -> None:
        """Scatter [P', R, ...] to its tokens of `out`, [T, ...]."""
        out[self.packed] = self.pick(found).to(out.dtype)

    def pick(self, found: Tensor) -> Tensor:
        """Remove padding: [P', R, ...] -> [t, ...]."""
        return found.flatten(0, 1).index_select(0, self.flat)


@dataclass(frozen=True, slots=True)
class TrunkTokens:
    """Tokens that continue trunks: in order within each prompt, all after what its state has seen.

    Attributes:
        prompts: int64 [P'], their prompts.
        rows: int64 [t], of the packed row.
        windows: int64 [t, W], the W tokens before each, nearest first. They index the P' * W last tokens of the
            trunks so
            far, and these t tokens after them.
        tails: int64 [P' * W], likewise, the last tokens of each trunk from now on.
        grids: the tokens prompt by prompt, those of about equal length side by side; each prompt is in one of them.
    """

    prompts: Tensor
    rows: Tensor
    windows: Tensor
    tails: Tensor
    grids: Sequence[TokenGrid]


@dataclass(frozen=True, slots=True)
class BranchTokens:
    """Tokens after trunks.

    Attributes:
        prompts, columns: int64 [t], where each is stored.
        rows: int64 [t], of the packed row.
        ancestors: int64 [t, W], the W tokens before each, nearest first, as prompt * columns + column.
        grids: input of layers that continue a state, not single tokens; each prompt is in one of them.
    """

    prompts: Tensor
    columns: Tensor
    rows: Tensor
    ancestors: Tensor
    grids: Sequence[BranchGrid]


class BranchGrid:
    """Branch tokens prompt by prompt, each after its ancestors, and who these are; computed when a layer asks."""

    def __init__(
        self,
        rows: IntArray,
        prompts: IntArray,
        columns: IntArray,
        pairs: AncestorPairs,
        picked: IntArray,
        device: torch.device,
    ) -> None:
        """Take the tokens `picked`, int64 [t'], of t. `columns`: int64 [t], counted from the end of the trunk's."""
        self._rows, self._prompts, self._columns = rows[picked], prompts[picked], columns[picked]
        self._step, self._picked, self._device = pairs, picked, device

    def _put(self, array: npt.NDArray[Any]) -> Tensor:
        return to_device(array, self._device)

    @cached_property
    def tokens(self) -> TokenGrid:
        """Grid of the tokens, [P', R]."""
        return TokenGrid.of(self._rows, self._prompts, self._device)

    @cached_property
    def stored(self) -> tuple[Tensor, Tensor]:
        """Prompt and column of each token, int64 [t'] each; columns count from the end of the trunk's, in the order of
        `tokens`.
        """
        return self._put(self._prompts), self._put(self._columns)

    @cached_property
    def _shape(self) -> tuple[int, int]:
        return self.tokens.rows.shape[0], self.tokens.rows.shape[1]

    @cached_property
    def _placed(self) -> tuple[IntArray, IntArray]:
        """Row of each token and its place in it, int64 [t'] each."""
        _, places, counts = np.unique(self._prompts, return_inverse=True, return_counts=True)
        return places, np.arange(len(places)) - (np.cumsum(counts) - counts)[places]

    @cached_property
    def _ancestors(self) -> tuple[tuple[IntArray, ...], tuple[IntArray, ...]]:
        """Pairs of these tokens with ancestors of earlier steps, and of this step. Both have row and place of the
        token. The former add the ancestor's column and distance, the latter its place.
        """
        places, ranks = self._placed
        number = np.full(int(self._picked.max()) + 1, -1)
        number[self._picked] = np.arange(len(self._picked))
        tokens = self._step.tokens
        is_own = tokens < len(number)
        is_own[is_own] = number[tokens[is_own]] >= 0
        token, columns = number[tokens[is_own]], self._step.columns[is_own]
        # The place of the token that each column holds, of this step.
        filled = np.full((self._shape[0], int(max(self._columns.max(), columns.max(initial=0))) + 1), -1)
        filled[places, self._columns] = ranks
        place, rank = places[token], ranks[token]
        now = filled[place, columns]
        old, new = now < 0, now >= 0
        return (
            (place[old], rank[old], columns[old], self._step.distances[is_own][old]),
            (place[new], rank[new], now[new]),
        )

    @cached_property
    def before(self) -> Tensor:
        """Ancestors of earlier steps, bool [P', R, C'], by column after the trunk's; C' is at least 1."""
        (*where, columns, _), _ = self._ancestors
        before = np.zeros((*self._shape, int(columns.max(initial=0)) + 1), dtype=bool)
        before[*where, columns] = True
        return self._put(before)

    @cached_property
    def nearest(self) -> Tensor:
        """Column of the deepest of these, int64 [P', R]; any column if there is none."""
        (*where, columns, distances), _ = self._ancestors
        order = np.argsort(-distances)  # of what is written to one place, the last stays
        nearest = np.zeros(self._shape, dtype=np.int64)
        nearest[*(each[order] for each in where)] = columns[order]
        return self._put(nearest)

    @cached_property
    def now(self) -> Tensor:
        """Ancestors among these tokens, bool [P', R, R], by place."""
        now = np.zeros((*self._shape, self._shape[1]), dtype=bool)
        now[*self._ancestors[1]] = True
        return self._put(now)

    @cached_property
    def _pairs(self) -> list[tuple[Tensor, IntArray]]:
        """True places of `before` and of `now`, int64 [3, n], prompt by prompt, and where each prompt begins."""
        (*before, _), now = self._ancestors
        tables = (np.stack(found) for found in (before, now))
        sorted_tables = [table[:, np.argsort(table[0], kind="stable")] for table in tables]
        prompts = np.arange(self._shape[0] + 1)
        return [(self._put(table), np.searchsorted(table[0], prompts)) for table in sorted_tables]

    def pairs(self, first: int, stop: int) -> list[Tensor]:
        """Return the true places in `before[first:stop]` and in `now[first:stop]`, int64 [3, n] each. Asking the device
        for them would mean waiting for it.
        """
        found = []
        for table, begins in self._pairs:
            part = table[:, begins[first] : begins[min(stop, self._shape[0])]]
            # Mostly all prompts are one part, and each layer asks anew.
            found.append(torch.stack([part[0] - first, part[1], part[2]]) if first else part)
        return found


_PADDING = 1.5
"""Largest ratio of a padded row's length to its number of tokens."""

_TRUNK_UNIT, _BRANCH_UNIT = 64, 16
"""Multiples up to which rows may be padded in any case. Transformers' functions compute at least that many tokens of a
trunk at a time. One more call would cost as much as that many tokens of branches.
"""


def alike(counts: IntArray, unit: int) -> list[IntArray]:
    """Group prompts of about equal numbers of tokens: int64, ascending, the longest prompts first.

    No prompt is padded to more than `_PADDING` times its tokens, nor beyond the next multiple of `unit`, whichever is
    more.
    """
    order = np.argsort(-counts, kind="stable")
    groups = []
    while len(order):
        own = counts[order]
        fits = own[0] <= np.maximum(_PADDING * own, -(-own // unit) * unit)
        groups.append(np.sort(order[fits]))
        order = order[~fits]
    return groups


def _tokens_alike(prompts: IntArray, unit: int) -> list[IntArray]:
    """Group tokens by such groups of prompts: int64 token indices. `prompts` [t], of each token, ascending."""
    picked, places, counts = np.unique(prompts, return_inverse=True, return_counts=True)
    groups = alike(counts, unit)
    if len(groups) == 1:
        return [np.arange(len(prompts))]
    group_of = np.empty(len(picked), dtype=np.int64)
    for number, group in enumerate(groups):
        group_of[group] = number
    return [np.nonzero(group_of[places] == number)[0] for number in range(len(groups))]


def branch_grids(
    rows: IntArray,
    prompts: IntArray,
    columns: IntArray,
    positions: IntArray,
    pairs: AncestorPairs,
    device: torch.device,
) -> list[BranchGrid]:
    """Return grids of t branch tokens; `columns`: int64 [t], of each, counted from the end of the trunk's."""
    order = np.lexsort((positions, prompts))  # nobody stands behind one who is deeper in the tree
    return [
        BranchGrid(rows, prompts, columns, pairs, order[group], device)
        for group in _tokens_alike(prompts[order], _BRANCH_UNIT)
    ]


def trunk_tokens(rows: IntArray, prompts: IntArray, width: int, device: torch.device) -> TrunkTokens:
    """Return the plan of the tokens `rows` of the prompts `prompts` (ascending), in order. `width`: W."""
    picked, places, counts = np.unique(prompts, return_inverse=True, return_counts=True)
    firsts = np.cumsum(counts) - counts
    ranks = np.arange(len(rows)) - firsts[places]
    before = np.arange(1, width + 1)
    windows = _of_trunk(ranks[:, None] - before, places[:, None], firsts[places][:, None], len(picked), width)
    last = counts[:, None] - width + np.arange(width)
    tails = _of_trunk(last, np.arange(len(picked))[:, None], firsts[:, None], len(picked), width)
    grids = [TokenGrid.of(rows[group], prompts[group], device) for group in _tokens_alike(prompts, _TRUNK_UNIT)]
    whose, where, before_each, ends = (to_device(each, device) for each in (picked, rows, windows, tails.ravel()))
    return TrunkTokens(whose, where, before_each, ends, grids)


def _of_trunk(ranks: IntArray, places: IntArray, firsts: IntArray, num_prompts: int, width: int) -> IntArray:
    """Return where a prompt's token of this rank is: among those of this step, or, if the rank is negative, in its
    tail.
    """
    index: IntArray = np.where(ranks >= 0, num_prompts * width + firsts + ranks, places * width + width + ranks)
    return index


_UNSEEN = 2**62
"""Position of an empty column."""


@dataclass(frozen=True, slots=True)
class AncestorPairs:
    """Pairs of t branch tokens with each of their ancestors after the trunk; n pairs, token by token.

    A branch has tens of tokens, and its prompt has thousands of columns, of other branches. So pairs are kept, not a
    matrix.

    Attributes:
        tokens: int64 [n], of the t.
        columns: int64 [n], of the ancestors, counted from the end of the trunk's.
        distances: int64 [n], how far these are before the token, at least 1.
    """

    tokens: IntArray
    columns: IntArray
    distances: IntArray


class SeenColumns:
    """Visibility of the columns of P prompts, on the host.

    Attributes:
        width: W, number of columns in front, which are the trunk's.
        used: int64 [P], columns after them that are in use.
    """

    def __init__(self, width: int, used: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray) -> None:
        """Take `scopes`, `lasts`, `positions`: int64 [P, W + C]."""
        self.width, self.used = width, used
        self._scopes, self._lasts, self._positions = scopes, lasts, positions
        self._stored: tuple[IntArray, IntArray] = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    @classmethod
    def of_trunks(cls, lengths: IntArray, width: int, capacity: int) -> SeenColumns:
        """Return the columns of trunks of these lengths, without branches."""
        shape = (len(lengths), capacity)
        found = cls(
            width,
            np.zeros(len(lengths), dtype=np.int64),
            np.full(shape, PUBLIC),
            np.full(shape, EVERYBODY),
            np.full(shape, _UNSEEN),
        )
        found.move_tails(lengths)
        return found

    @classmethod
    def joined(cls, parts: Sequence[SeenColumns]) -> SeenColumns:
        """Join the prompts of all parts, which have one capacity."""
        arrays = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("used", "_scopes", "_lasts", "_positions")
        )
        return cls(parts[0].width, *arrays)

    def rows(self, picked: IntArray, capacity: int) -> SeenColumns:
        """Return the picked prompts, with `capacity` columns."""

        def moved(array: IntArray, fill: int) -> IntArray:
            kept = array[picked, :capacity]
            return np.pad(kept, ((0, 0), (0, capacity - kept.shape[1])), constant_values=fill)

        return SeenColumns(
            self.width,
            self.used[picked],
            moved(self._scopes, PUBLIC),
            moved(self._lasts, EVERYBODY),
            moved(self._positions, _UNSEEN),
        )

    @property
    def capacity(self) -> int:
        """Number of columns per prompt, W + C."""
        return int(self._positions.shape[1])

    def move_tails(self, lengths: IntArray) -> None:
        """Move the trunks' columns to the trunks' new lengths. Before a text there are columns of zeros, at negative
        positions.
        """
        self._positions[:, : self.width] = lengths[:, None] - self.width + np.arange(self.width)

    def add(
        self, prompts: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray
    ) -> tuple[IntArray, AncestorPairs, IntArray]:
        """Assign columns to t branch tokens; those of a prompt are neighbours.

        Returns:
            Columns, int64 [t]; pairs with their ancestors; the nearest W ancestors, nearest first, int64 [t, W].
        """
        picked, firsts, counts = np.unique(prompts, return_index=True, return_counts=True)
        columns = self.width + self.used[prompts] + np.arange(len(prompts)) - np.repeat(firsts, counts)
        self._scopes[prompts, columns], self._lasts[prompts, columns] = scopes, lasts
        self._positions[prompts, columns] = positions
        self.used = self.used + np.bincount(prompts, minlength=len(self.used))
        self._stored = prompts, columns
        found = []
        # Prompt by prompt: matrices of tokens and columns that stay in a processor's cache.
        for prompt, first, stop in zip(picked.tolist(), firsts.tolist(), (firsts + counts).tolist(), strict=True):
            here = slice(self.width + int(self.used[prompt]))
            # A token's ancestors are those that it sees before itself: one at each position.
            seen = visible(
                scopes[first:stop, None],
                positions[first:stop, None] - 1,
                self._scopes[prompt, here],
                self._lasts[prompt, here],
                self._positions[prompt, here],
            )
            token, column = np.divmod(np.flatnonzero(seen), seen.shape[1])  # of bits in a row it is quicker
            found.append((first + token, column))
        tokens, ancestors = (np.concatenate(each) for each in zip(*found, strict=True))
        distances = positions[tokens] - self._positions[prompts[tokens], ancestors]
        nearest = np.zeros((len(prompts), self.width), dtype=np.int64)
        is_near = distances <= self.width
        nearest[tokens[is_near], distances[is_near] - 1] = ancestors[is_near]
        is_behind = ancestors >= self.width
        pairs = AncestorPairs(tokens[is_behind], ancestors[is_behind] - self.width, distances[is_behind])
        return columns, pairs, nearest

    def reject(self, wrong: npt.NDArray[np.bool_], counts: IntArray) -> None:
        """Hide the tokens `wrong` of those added last, `counts` for each prompt."""
        prompts, columns = self._stored
        self._positions[prompts[wrong], columns[wrong]] = _UNSEEN
        firsts = self.width + self.used - counts
        kept = np.zeros_like(counts)
        np.maximum.at(kept, prompts[~wrong], (columns - firsts[prompts])[~wrong] + 1)
        self.used = self.used - counts + kept
