"""The KV cache's memory: one block a cohort, taken from a pool.

Memory that is used for the first time costs several times what is written to it, because the system hands it out page
by page; blocks are large and short-lived, so their memory is used again. It may then hold anything, NaN included. A
column of a block is therefore cleared when it comes into use (`KVBlock.expose`): what is masked is multiplied by zero,
and must be finite for that.
"""

from __future__ import annotations

import bisect
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from hpd_core.layout import PUBLIC

UNSEEN = 2**62
"""The position of a cache column that holds nothing: later than every token's, so that nobody sees it."""

UNUSED_FILL: float | None = None
"""What memory holds when it is taken; None: whatever is there. Tests poison it."""

EXPOSED_FILL = 0.0
"""What a column in use holds where a prompt has no token. Must be finite; tests make it large."""

_MAX_EXCESS = 1.25  # a buffer is used again for a block that leaves little of it idle


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one token takes in the cache, the same for every layer."""

    num_layers: int
    num_kv_heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """Keys and values of a category's prefix, [num_layers, H_kv, L, D]."""

    keys: Tensor
    values: Tensor

    @property
    def num_tokens(self) -> int:
        """L."""
        return self.keys.shape[2]


class KVBlock:
    """Room for P prompts of `capacity` tokens each.

    Attributes:
        keys, values: [num_layers, P, H_kv, capacity, D]
        scopes, positions: int64 [P, capacity], of the token in each column (layout.py).
        num_exposed: columns in use by some prompt; where a prompt has no token, they hold EXPOSED_FILL, seen by nobody.
    """

    def __init__(self, shape: CacheShape, buffer: Tensor, num_prompts: int, capacity: int) -> None:
        slots = (shape.num_layers, num_prompts, shape.num_kv_heads, capacity)
        num_keys = _num_elements(slots) * shape.key_size
        num_values = _num_elements(slots) * shape.value_size
        self.keys = buffer[:num_keys].view(*slots, shape.key_size)
        self.values = buffer[num_keys : num_keys + num_values].view(*slots, shape.value_size)
        self.scopes = torch.empty(num_prompts, capacity, dtype=torch.int64, device=shape.device)
        self.positions = torch.empty_like(self.scopes)
        self.num_exposed = 0

    @property
    def capacity(self) -> int:
        """Columns."""
        return self.scopes.shape[1]

    def expose(self, num_columns: int) -> None:
        """Brings the first `num_columns` columns into use."""
        if num_columns > self.num_exposed:
            fresh = slice(self.num_exposed, num_columns)
            self.keys[:, :, :, fresh].fill_(EXPOSED_FILL)
            self.values[:, :, :, fresh].fill_(EXPOSED_FILL)
            self.scopes[:, fresh].fill_(PUBLIC)
            self.positions[:, fresh].fill_(UNSEEN)
            self.num_exposed = num_columns

    def put_prefix(self, row: int, prefix: PrefixCache) -> None:
        """Writes a prefix to the first columns of a prompt."""
        length = prefix.num_tokens
        self.keys[:, row, :, :length] = prefix.keys
        self.values[:, row, :, :length] = prefix.values
        self.positions[row, :length] = torch.arange(length, device=self.positions.device)

    def prefix(self, row: int, length: int) -> PrefixCache:
        """A copy of a prompt's first columns."""
        return PrefixCache(self.keys[:, row, :, :length].clone(), self.values[:, row, :, :length].clone())

    def copy(self, source: KVBlock, rows: Iterable[tuple[int, int]], num_columns: int) -> None:
        """Copies the first `num_columns` columns of prompts of another block; `rows`: pairs (to, from)."""
        for to, origin in rows:
            for new, old in ((self.keys, source.keys), (self.values, source.values)):
                new[:, to, :, :num_columns] = old[:, origin, :, :num_columns]
            self.scopes[to, :num_columns] = source.scopes[origin, :num_columns]
            self.positions[to, :num_columns] = source.positions[origin, :num_columns]


def _num_elements(sizes: Iterable[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


class CachePool:
    """Where blocks come from. A block's memory comes back by itself when nobody holds the block any more.

    The pool never holds more memory than was once in use at the same time. One thread takes; any may drop a block.
    """

    def __init__(self, shape: CacheShape) -> None:
        self.shape = shape
        self._idle: list[Tensor] = []  # smallest first
        self._returned: deque[Tensor] = deque()
        self._num_used, self._peak = 0, 0  # elements

    def take(self, num_prompts: int, capacity: int) -> KVBlock:
        """A block with no column in use."""
        shape = self.shape
        size = shape.num_layers * num_prompts * shape.num_kv_heads * capacity * (shape.key_size + shape.value_size)
        self._collect()
        buffer = self._reused(size)
        if buffer is None:
            self._make_room(size)
            buffer = torch.empty(size, dtype=shape.dtype, device=shape.device)
        self._num_used += buffer.numel()
        self._peak = max(self._peak, self._num_used)
        if UNUSED_FILL is not None:
            buffer.fill_(UNUSED_FILL)
        block = KVBlock(shape, buffer, num_prompts, capacity)
        weakref.finalize(block, self._returned.append, buffer).atexit = False
        return block

    def clear(self) -> None:
        """Gives the memory that waits to be used again back to the system."""
        self._collect()
        self._idle.clear()

    @property
    def num_idle(self) -> int:
        """Elements that wait to be used again."""
        self._collect()
        return sum(buffer.numel() for buffer in self._idle)

    def _collect(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
            self._num_used -= self._idle[-1].numel()
        self._idle.sort(key=torch.Tensor.numel)

    def _reused(self, size: int) -> Tensor | None:
        sizes = [buffer.numel() for buffer in self._idle]
        index = bisect.bisect_left(sizes, size)
        return self._idle.pop(index) if index < len(sizes) and sizes[index] <= _MAX_EXCESS * size else None

    def _make_room(self, size: int) -> None:
        """Drops idle memory, so that with `size` more the peak is not exceeded by it."""
        while self._idle and self._num_used + size + self.num_idle > self._peak:
            self._idle.pop(0)
