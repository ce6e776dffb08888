"""Branch tokens as a kernel for GPUs takes them (triton_branches.py): without padding, by the numbers of tables."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.mixers.seen_columns import AncestorPairs
from hpd_core.system.device import to_device

ROWS = 16
"""Tokens of a prompt that are computed side by side."""

BEFORE, BESIDE = 1, 2
"""Of a column that a token sees: it is written before the token's `ROWS` are computed, or it is one of them."""


class BranchTables:
    """Of t branch tokens, in order: prompt by prompt, each behind its ancestors; made when a layer asks."""

    def __init__(
        self,
        rows: IntArray,
        prompts: IntArray,
        columns: IntArray,
        positions: IntArray,
        pairs: AncestorPairs,
        device: torch.device,
        width: int,
    ) -> None:
        """As `step_plan.branch_grids`; `width`: W, of the columns in front, which are the trunk's."""
        order = np.lexsort((positions, prompts))
        self._rows, self._prompts, self._columns = rows[order], prompts[order], columns[order]
        self._pairs, self._order, self._device = pairs, order, device
        self.width = width

    @cached_property
    def _ancestors(self) -> tuple[IntArray, IntArray]:
        """int64 [n] each: tokens, in this order, and columns of their ancestors."""
        return np.argsort(self._order)[self._pairs.tokens], self._pairs.columns

    @cached_property
    def prompts(self) -> Tensor:
        """int64 [P', 4], of each prompt that has tokens: its number, its first token and how many it has, and how many
        columns behind the trunk's these see."""
        picked, firsts, counts = np.unique(self._prompts, return_index=True, return_counts=True)
        tokens, columns = self._ancestors
        stops = np.zeros(len(self._prompts), dtype=np.int64)
        np.maximum.at(stops, tokens, columns + 1)
        table = np.stack([picked, firsts, counts, np.maximum.reduceat(stops, firsts)], axis=1)
        return to_device(table, self._device)

    @cached_property
    def tokens(self) -> Tensor:
        """int64 [3, t], of each token: its place in the packed row, its column, and whose it is."""
        return to_device(np.stack([self._rows, self.width + self._columns, self._prompts]), self._device)

    @cached_property
    def seen(self) -> Tensor:
        """uint8 [t, C], of columns behind the trunk's: 0, `BEFORE` or `BESIDE`."""
        tokens, columns = self._ancestors
        firsts = np.searchsorted(self._prompts, self._prompts)
        block = (np.arange(len(firsts)) - firsts) // ROWS
        num_columns = int(self._columns.max()) + 1
        # The block of the token that each column holds, of this step.
        written = np.full((int(self._prompts.max()) + 1, num_columns), -1)
        written[self._prompts, self._columns] = block
        seen = np.zeros((len(block), num_columns), dtype=np.uint8)
        seen[tokens, columns] = np.where(written[self._prompts[tokens], columns] == block[tokens], BESIDE, BEFORE)
        return to_device(seen, self._device)
