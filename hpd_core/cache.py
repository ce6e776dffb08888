"""Memory for keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.transfer import to_device

UNUSED_FILL = 0.0
"""What fresh cache holds, where it is filled. Must be finite (a masked NaN is still NaN); tests poison it with large
numbers."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one token takes in the cache, the same for every layer."""

    num_layers: int
    num_kv_heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def numbers_per_token(self) -> int:
        """Of all layers."""
        return self.num_layers * self.num_kv_heads * (self.key_size + self.value_size)


class CacheBlock:
    """Keys and values of P prompts, per layer [P, H_kv, capacity, D]."""

    def __init__(self, shape: CacheShape, memory: Tensor, num_prompts: int, capacity: int) -> None:
        """Takes the first numbers of `memory`."""
        self.memory = memory
        rows = shape.num_layers * num_prompts * shape.num_kv_heads * capacity
        num_keys, num_values = rows * shape.key_size, rows * shape.value_size
        by_layer = (shape.num_layers, num_prompts, shape.num_kv_heads, capacity)
        self._all_keys = memory[:num_keys].view(*by_layer, shape.key_size)
        self._all_values = memory[num_keys : num_keys + num_values].view(*by_layer, shape.value_size)
        self.keys, self.values = list(self._all_keys), list(self._all_values)

    def copy_prompts(self, rows: IntArray, source: CacheBlock, source_rows: IntArray, num_columns: IntArray) -> None:
        """Into `rows`, prompts of another block: of each so many columns of all layers, or more."""
        for mine, others in ((self._all_keys, source._all_keys), (self._all_values, source._all_values)):
            if self.memory.device.type == "cpu":
                for to, from_, width in zip(rows.tolist(), source_rows.tolist(), num_columns.tolist(), strict=True):
                    mine[:, to, :, :width] = others[:, from_, :, :width]
            elif len(rows):  # a GPU would rather copy more than be called once more
                to, from_ = (to_device(index, self.memory.device) for index in (rows, source_rows))
                width = int(num_columns.max())
                mine[:, to, :, :width] = others[:, from_, :, :width]


class CachePool:
    """Blocks, and the memory of those that were given back.

    On a CPU the first touch of memory is its price: a page fault for every 4 KiB, and a cohort takes some hundred MiB.
    Blocks in use and memory for later are together never more than the blocks that were once in use at a time, where a
    block may lie in memory of up to twice its size.
    """

    def __init__(self, shape: CacheShape, *, fills: bool = True) -> None:
        """`fills`: fresh blocks hold `UNUSED_FILL`; else anything, for an attention that reads only columns in use."""
        self.shape = shape
        self.fills = fills
        self._free: list[Tensor] = []
        self.num_used = 0
        """Numbers in blocks that are not given back."""
        self._most_used = 0

    @property
    def num_free(self) -> int:
        """Numbers that are kept for later."""
        return sum(memory.numel() for memory in self._free)

    def take(self, num_prompts: int, capacity: int) -> CacheBlock:
        """A block that nobody else has."""
        size = num_prompts * capacity * self.shape.numbers_per_token
        # A much larger one would be missing elsewhere.
        fitting = [index for index, memory in enumerate(self._free) if size <= memory.numel() <= 2 * size]
        if fitting:
            memory = self._free.pop(min(fitting, key=lambda index: self._free[index].numel()))
        else:
            self._most_used = max(self._most_used, self.num_used + size)
            while self.num_used + size + self.num_free > self._most_used:
                self._free.pop(0)
            memory = torch.empty(size, dtype=self.shape.dtype, device=self.shape.device)
        self.num_used += memory.numel()
        self._most_used = max(self._most_used, self.num_used)
        if self.fills:
            # Also what was used before: a NaN that a model made of one prompt must not reach another.
            memory[:size].fill_(UNUSED_FILL)
        return CacheBlock(self.shape, memory, num_prompts, capacity)

    def give_back(self, block: CacheBlock) -> None:
        """Nobody may read the block any more, nor give it back again."""
        self.num_used -= block.memory.numel()
        self._free.append(block.memory)

    def clear(self) -> None:
        """Forgets all blocks and frees its memory: after an error nobody knows which of them were given back."""
        self._free.clear()
        self.num_used = self._most_used = 0
