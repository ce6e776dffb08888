"""Of one cohort's tokens of a step: which go on with a trunk, which stand behind one, and who their ancestors are.

It is made once a step, for all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.system.device import to_device


@dataclass(frozen=True, slots=True)
class TokenGrid:
    """Tokens of several prompts as a rectangle: of each prompt a row, padded behind its last token.

    Attributes:
        rows: int64 [P', R], of the packed row; padding repeats a row.
        is_token: bool [P', R], and not padding.
        flat: int64 [t], the place of each token in the rectangle, row by row.
    """

    rows: Tensor
    is_token: Tensor
    flat: Tensor

    @classmethod
    def of(cls, rows: IntArray, places: IntArray, ranks: IntArray, device: torch.device) -> TokenGrid:
        """Of tokens whose prompts are numbered by `places` from 0, without gaps, and counted by `ranks`."""
        shape = (int(places.max()) + 1, int(ranks.max()) + 1)
        grid, is_token = np.full(shape, rows[0]), np.zeros(shape, dtype=bool)
        grid[places, ranks], is_token[places, ranks] = rows, True
        return cls(*(to_device(array, device) for array in (grid, is_token, places * shape[1] + ranks)))

    def take(self, tokens: Tensor) -> Tensor:
        """[T, ...] -> [P', R, ...], padding 0."""
        taken = tokens.index_select(0, self.rows.flatten()).view(*self.rows.shape, *tokens.shape[1:])
        return taken.masked_fill_(~self.is_token.view(*self.rows.shape, *[1] * (tokens.dim() - 1)), 0)


@dataclass(frozen=True, slots=True)
class TrunkTokens:
    """Tokens that go on with trunks: of each prompt one behind the other, all behind what its state has seen.

    Attributes:
        prompts: int64 [P'], whose.
        rows: int64 [t], of the packed row.
        windows: int64 [t, W], the W tokens before each, the nearest first, of the P' * W last tokens of the trunks so
            far and of these t behind them.
        tails: int64 [P' * W], likewise, the last tokens of each trunk from now on.
        grid: the tokens prompt by prompt.
    """

    prompts: Tensor
    rows: Tensor
    windows: Tensor
    tails: Tensor
    grid: TokenGrid


@dataclass(frozen=True, slots=True)
class BranchTokens:
    """Tokens behind trunks.

    Attributes:
        prompts, columns: int64 [t], where each is stored.
        rows: int64 [t], of the packed row.
        ancestors: int64 [t, W], the W tokens before each, the nearest first, as prompt * columns + column.
        in_order: what a layer needs that goes on with a state, not with single tokens.
    """

    prompts: Tensor
    columns: Tensor
    rows: Tensor
    ancestors: Tensor
    in_order: BranchGrid


class BranchGrid:
    """Branch tokens prompt by prompt, each behind its ancestors, and who these are; made when a layer asks."""

    def __init__(
        self,
        rows: IntArray,
        prompts: IntArray,
        columns: IntArray,
        positions: IntArray,
        distances: IntArray,
        width: int,
        device: torch.device,
    ) -> None:
        """`distances`: int64 [t, W + C], how far each token's ancestors are before it, 0 for all other columns."""
        order = np.lexsort((positions, prompts))  # nobody stands behind one who is deeper in the tree
        self._rows, self._prompts, self._columns = rows[order], prompts[order], columns[order]
        self._distances, self._width, self._device = distances[order, width:], width, device
        self._picked, self._places = np.unique(self._prompts, return_inverse=True)
        self._ranks = np.arange(len(order)) - np.searchsorted(self._prompts, self._prompts)

    def _put(self, array: npt.NDArray[Any]) -> Tensor:
        return to_device(array, self._device)

    @cached_property
    def tokens(self) -> TokenGrid:
        """The tokens, [P', R]."""
        return TokenGrid.of(self._rows, self._places, self._ranks, self._device)

    @cached_property
    def rows(self) -> Tensor:
        """int64 [t], of the packed row, in the order of `tokens.flat`."""
        return self._put(self._rows)

    @cached_property
    def stored(self) -> tuple[Tensor, Tensor]:
        """int64 [t] each: prompt and column of each token, likewise."""
        return self._put(self._prompts), self._put(self._columns)

    @cached_property
    def prompts(self) -> Tensor:
        """int64 [P'], whose each row is."""
        return self._put(self._picked)

    @cached_property
    def _all(self) -> tuple[IntArray, npt.NDArray[np.bool_], IntArray]:
        """Distances [P', R, C], columns filled now [P', C], and the column of each place [P', R], -1 for padding."""
        num_prompts, num_rows = len(self._picked), int(self._ranks.max()) + 1
        distances = np.zeros((num_prompts, num_rows, self._distances.shape[1]), dtype=np.int64)
        distances[self._places, self._ranks] = self._distances
        is_new = np.zeros((num_prompts, self._distances.shape[1]), dtype=bool)
        is_new[self._places, self._columns - self._width] = True
        columns = np.full((num_prompts, num_rows), -1)
        columns[self._places, self._ranks] = self._columns - self._width
        return distances, is_new, columns

    @cached_property
    def _before(self) -> IntArray:
        """Distances of ancestors of steps before, as far as there are any: [P', R, C'], C' at least 1."""
        distances, is_new, _ = self._all
        before = np.where(is_new[:, None, :], 0, distances)
        used = np.nonzero(before.any(axis=(0, 1)))[0]
        return before[:, :, : int(used[-1]) + 1 if len(used) else 1]

    @cached_property
    def before(self) -> Tensor:
        """Bool [P', R, C'], the ancestors of steps before, by column behind the trunk's."""
        return self._put(self._before > 0)

    @cached_property
    def nearest(self) -> Tensor:
        """int64 [P', R], the deepest of these; any column where there is none."""
        return self._put(np.where(self._before > 0, self._before, _FAR).argmin(axis=2))

    @cached_property
    def now(self) -> Tensor:
        """Bool [P', R, R], the ancestors among these tokens, by place."""
        distances, _, columns = self._all
        found = np.take_along_axis(distances, np.maximum(columns, 0)[:, None, :], axis=2) > 0
        return self._put(found & (columns >= 0)[:, None, :])


_FAR = 2**62


def trunk_tokens(rows: IntArray, prompts: IntArray, width: int, device: torch.device) -> TrunkTokens:
    """The tokens `rows`, of the prompts `prompts` (ascending), one behind the other. `width`: W."""
    picked, places, counts = np.unique(prompts, return_inverse=True, return_counts=True)
    firsts = np.cumsum(counts) - counts
    ranks = np.arange(len(rows)) - firsts[places]
    before = np.arange(1, width + 1)
    windows = _of_trunk(ranks[:, None] - before, places[:, None], firsts[places][:, None], len(picked), width)
    last = counts[:, None] - width + np.arange(width)
    tails = _of_trunk(last, np.arange(len(picked))[:, None], firsts[:, None], len(picked), width)
    grid = TokenGrid.of(rows, places, ranks, device)
    whose, where, before_each, ends = (to_device(each, device) for each in (picked, rows, windows, tails.ravel()))
    return TrunkTokens(whose, where, before_each, ends, grid)


def _of_trunk(ranks: IntArray, places: IntArray, firsts: IntArray, num_prompts: int, width: int) -> IntArray:
    """Where a prompt's token of this rank is: among those of this step, or, of negative rank, in its tail."""
    index: IntArray = np.where(ranks >= 0, num_prompts * width + firsts + ranks, places * width + width + ranks)
    return index
