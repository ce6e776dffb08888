"""Logits that are never stored, where the last product is by tiles (AMX)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.native.linear import TiledLinear, linear, pack


@dataclass(frozen=True, slots=True)
class TiledLogits:
    """Logits that are never stored: the last product is by tiles, and tokens are chosen from its sums.

    Attributes:
        hidden: [n, D], of n rows.
        head: the last layer.
        weight: the same, [V, D].
    """

    hidden: Tensor
    head: TiledLinear
    weight: Tensor

    def of(self, rows: Tensor, ids: IntArray) -> Tensor:
        """Return the logits of some rows, int64 [m], for a few tokens each, `ids` [m, c], equal to those of the whole
        product.
        """
        few, places = np.unique(ids, return_inverse=True)
        columns = torch.from_numpy(few)
        bias = None if self.head.bias is None else self.head.bias[columns]
        product = linear(self.hidden[rows], pack(self.weight[columns]), bias)
        return product.gather(1, torch.from_numpy(places.reshape(ids.shape)))

    def of_pairs(self, rows: IntArray, ids: IntArray) -> Tensor:
        """Return the logits of single tokens, [m]: of token `ids[i]` in row `rows[i]`, as `of` returns them."""
        few, places = np.unique(rows, return_inverse=True)
        tokens, columns = np.unique(ids, return_inverse=True)
        every = np.broadcast_to(tokens, (len(few), len(tokens)))
        return self.of(torch.from_numpy(few), every)[torch.from_numpy(places), torch.from_numpy(columns)]
