"""Memory for keys and values of single prompts, for an attention that finds them by address.

A slot has room for the longest that its prompt may become, so nothing is moved when cohorts shrink, grow or are merged.
It is released when its prompt is finished. After keys and values come the scope and the position of every column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from hpd_core.attention.kv_cache import CacheOrder, CacheShape
from hpd_core.layout import IntArray

Count = TypeVar("Count", int, IntArray)

_ALIGNMENT = 256
"""Alignment, in bytes, of the scopes and positions after keys and values."""


@dataclass(frozen=True, slots=True, eq=False)
class CacheSlot:
    """Memory of one prompt. Columns that were not written yet may hold anything.

    Attributes:
        memory: uint8: keys [layers, H_kv, capacity, D], values, and int64 [2, capacity], scopes and positions.
        capacity: number of columns that it has room for.
    """

    shape: CacheShape
    memory: Tensor
    capacity: int

    @classmethod
    def new(cls, shape: CacheShape, capacity: int) -> CacheSlot:
        """Allocate a slot."""
        size = seen_offset(shape, capacity) + 16 * capacity
        return cls(shape, torch.empty(size, dtype=torch.uint8, device=shape.device), capacity)

    @property
    def keys(self) -> Tensor:
        """Keys, [layers, H_kv, capacity, D]."""
        return self._numbers()[0]

    @property
    def values(self) -> Tensor:
        """Values, [layers, H_kv, capacity, D_v]."""
        return self._numbers()[1]

    @property
    def seen(self) -> Tensor:
        """Scopes (first and last one: `packed_scopes` in step_tables.py) and positions, int64 [2, capacity]."""
        return self.memory[seen_offset(self.shape, self.capacity) :].view(torch.int64).view(2, self.capacity)

    def _numbers(self) -> tuple[Tensor, Tensor]:
        numbers = self.memory[: self.capacity * self.shape.numbers_per_token * self.shape.dtype.itemsize]
        ((keys, values),) = CacheOrder().tensors(self.shape, numbers.view(self.shape.dtype), 1, self.capacity)
        return keys[:, 0], values[:, 0]

    def grown(self, capacity: int, used: int) -> CacheSlot:
        """Return a larger slot with a copy of the first `used` columns."""
        larger = CacheSlot.new(self.shape, capacity)
        larger.keys[:, :, :used] = self.keys[:, :, :used]
        larger.values[:, :, :used] = self.values[:, :, :used]
        larger.seen[:, :used] = self.seen[:, :used]
        return larger


def seen_offset(shape: CacheShape, capacity: Count) -> Count:
    """Return the offset in bytes of a slot's scopes and positions; of one slot, or of several."""
    num_bytes = capacity * (shape.numbers_per_token * shape.dtype.itemsize)
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
