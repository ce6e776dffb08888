"""Order of tokens in a packed row, for layers whose tokens see others in the order of their text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hpd_core.errors import ModelError
from hpd_core.layout import PUBLIC, IntArray
from hpd_core.mixers.step_plan import TokenGrid
from hpd_core.system.device import to_device


class TextOrder:
    """Packed row of `tree`: a prefix, examples after it, branches after each example's trunk; computed on demand.

    Attributes:
        num_examples: P.
    """

    def __init__(
        self,
        size: int,
        lengths: Sequence[int],
        scopes: IntArray,
        positions: IntArray,
        num_padding: int,
        device: torch.device | str,
    ) -> None:
        """Take a prefix of `size` tokens and examples of these lengths. `scopes`, `positions`: int64 [T], of all of
        them; padding comes after them.
        """
        self.num_examples = len(lengths)
        self._size, self._scopes, self._positions, self._num_padding = size, scopes, positions, num_padding
        self._device = torch.device(device)
        self._examples = np.repeat(np.arange(len(lengths)), lengths)  # of each token behind the prefix
        self._windows: dict[int, Tensor] = {}

    @cached_property
    def prefix(self) -> TokenGrid | None:
        """Prefix in one row; None if there is none."""
        rows = np.arange(self._size)
        return TokenGrid.of(rows, np.zeros_like(rows), self._device) if self._size else None

    @cached_property
    def trunks(self) -> TokenGrid | None:
        """Tokens of each example between the prefix and its branches; None if there are none."""
        rows = self._own[self._scopes[self._own] == PUBLIC]
        return TokenGrid.of(rows, self._examples[rows - self._size], self._device) if len(rows) else None

    @cached_property
    def branches(self) -> TokenGrid | None:
        """Tokens of each example's branches, each after those of its branch that it follows; None if there are none."""
        rows = self._of_branches
        return TokenGrid.of(rows, self._examples[rows - self._size], self._device) if len(rows) else None

    @cached_property
    def before(self) -> Tensor:
        """Ancestors of each of an example's tokens within `branches`, bool [P', R, R]."""
        assert self.branches is not None
        grid = self.branches
        scopes = to_device(self._scopes, self._device)[grid.rows]
        is_alike = (scopes[:, :, None] == scopes[:, None, :]) & grid.is_token[:, None, :]
        return is_alike.tril(-1)

    def windows(self, width: int) -> Tensor:
        """Return the tokens before each token, nearest first, int64 [T, width]; T where there are none."""
        if width not in self._windows:
            parents = self._parents
            found = [parents]
            while len(found) < width:
                found.append(parents[found[-1]])
            self._windows[width] = to_device(np.stack(found, axis=1)[:-1], self._device)
        return self._windows[width]

    @cached_property
    def _own(self) -> IntArray:
        """Rows after the prefix."""
        return np.arange(self._size, len(self._scopes))

    @cached_property
    def _of_branches(self) -> IntArray:
        """Rows of branches, by example, branch and position."""
        rows = self._own[self._scopes[self._own] != PUBLIC]
        keys = self._positions[rows], self._scopes[rows], self._examples[rows - self._size]
        ordered: IntArray = rows[np.lexsort(keys)]
        return ordered

    @cached_property
    def _parents(self) -> IntArray:
        """Predecessor of each token, int64 [T + 1]; T if it has none, and for T itself.

        Raises:
            ModelError: the texts are stacked.
        """
        nobody = len(self._scopes) + self._num_padding
        parents = np.full(nobody + 1, nobody)
        parents[1 : self._size] = np.arange(self._size - 1)
        ends = np.full(self.num_examples, self._size - 1 if self._size else nobody)
        trunk = self._own[self._scopes[self._own] == PUBLIC]
        for rows in (trunk, self._of_branches):
            owners, scopes = self._examples[rows - self._size], self._scopes[rows]
            is_next = (owners[1:] == owners[:-1]) & (scopes[1:] == scopes[:-1])
            parents[rows] = ends[owners]
            parents[rows[1:][is_next]] = rows[:-1][is_next]
            ends[owners] = rows  # the last one of each stays
        positions = np.append(self._positions, np.full(self._num_padding + 1, -1))
        if (self._positions != positions[parents[: len(self._positions)]] + 1).any():
            raise ModelError(
                "layers whose tokens hear of others in the order of the text are trained in the layouts 'tree' and "
                "'ar' alone: in 'stacked', values stand between keys that are fed before them"
            )
        return parents
