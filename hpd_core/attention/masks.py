"""Masks that are added to scores."""

from __future__ import annotations

import torch
from torch import Tensor

ALIGNMENT = 8
"""Alignment of a mask's rows, in elements: torch's memory-efficient kernel would copy an unaligned one in every
layer."""


def additive(seen: Tensor, group: int, dtype: torch.dtype, alignment: int = 1) -> Tensor:
    """Make an additive mask [n, 1, rows * G, C] of bool [n, rows, C]; its rows begin at multiples of `alignment`."""
    num_columns = seen.shape[-1]
    padded = -(-num_columns // alignment) * alignment
    bias = torch.zeros(*seen.shape[:-1], padded, dtype=dtype, device=seen.device)
    # Finite, so that a stretch in which nothing is visible does not become NaN inside the kernel.
    bias[..., :num_columns].masked_fill_(~seen, torch.finfo(dtype).min / 2)
    return bias.repeat_interleave(group, dim=1)[:, None, :, :num_columns]
