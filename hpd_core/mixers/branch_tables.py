"""Branch tokens as a kernel for GPUs takes them (triton_branches.py): without padding, by the numbers of tables."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hpd_core.layout import IntArray
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
        distances: IntArray,
        width: int,
        device: torch.device,
    ) -> None:
        """As `step_plan.branch_grids`."""
        order = np.lexsort((positions, prompts))
        self._rows, self._prompts, self._columns = rows[order], prompts[order], columns[order]
        self._distances, self._order, self._device = distances, order, device
        self.width = width

    @cached_property
    def prompts(self) -> Tensor:
        """int64 [P', 4], of each prompt that has tokens: its number, its first token and how many it has, and how many
        columns behind the trunk's these see."""
        picked, firsts, counts = np.unique(self._prompts, return_index=True, return_counts=True)
        is_seen = self._seen > 0
        last = np.where(is_seen.any(axis=1), is_seen.shape[1] - is_seen[:, ::-1].argmax(axis=1), 0)
        table = np.stack([picked, firsts, counts, np.maximum.reduceat(last, firsts)], axis=1)
        return to_device(table, self._device)

    @cached_property
    def tokens(self) -> Tensor:
        """int64 [3, t], of each token: its place in the packed row, its column, and whose it is."""
        return to_device(np.stack([self._rows, self._columns, self._prompts]), self._device)

    @cached_property
    def _seen(self) -> np.ndarray:
        seen = (self._distances[self._order, self.width :] > 0).astype(np.uint8)
        firsts = np.searchsorted(self._prompts, self._prompts)
        block = (np.arange(len(firsts)) - firsts) // ROWS
        # The block of the token that each column holds, of this step.
        written = np.full((int(self._prompts.max()) + 1, seen.shape[1]), -1)
        written[self._prompts, self._columns - self.width] = block
        seen[(seen > 0) & (written[self._prompts] == block[:, None])] = BESIDE
        return seen

    @cached_property
    def seen(self) -> Tensor:
        """uint8 [t, C], of columns behind the trunk's: 0, `BEFORE` or `BESIDE`."""
        return to_device(self._seen, self._device)
