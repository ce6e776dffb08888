"""Memory for keys and values: blocks of cohorts, and slots of single prompts for attention that finds them by address.

A slot has room for its prompt with values of usual length, and is replaced by a larger one if they are longer. Nothing
is moved when cohorts shrink or are merged. A slot is released when its prompt is finished. After keys and values come
the scope and the position of every column.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.system.device import to_device
from hpd_core.system.leases import RangesInUse

logger = logging.getLogger(__name__)

PAGE = 4096
"""Page size in bytes; parts of an arena begin at multiples of it, counted from the arena's start."""

UNUSED_FILL = 0.0
"""Content of fresh cache that is filled. It must be finite (a masked NaN is still NaN); tests poison it with large
numbers."""


_SLOT_MULTIPLE = 64
"""Columns; a prompt with memory of its own has whole multiples of it."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Size of one token in the cache of one layer.

    Attributes:
        num_heads: query heads, which take nothing in the cache; 0 if not needed.
    """

    num_kv_heads: int
    key_size: int
    value_size: int
    num_heads: int = 0

    @property
    def numbers_per_token(self) -> int:
        """Number of elements of keys and values per token."""
        return self.num_kv_heads * (self.key_size + self.value_size)

    @property
    def attended_numbers(self) -> int:
        """Number of elements per token during attention: all heads' queries, keys, values and outputs."""
        return (self.num_heads + self.num_kv_heads) * (self.key_size + self.value_size)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Size of one token in the cache.

    Attributes:
        layers: shapes of the layers that have keys and values of their own.
        calls: for each attention call of a forward, in order, the index in `layers` of the cache that it attends to.
            Most models call once per layer, some later layers attend to an earlier one's, and some call several times.
    """

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device
    calls: tuple[int, ...]

    @classmethod
    def uniform(
        cls,
        num_layers: int,
        num_kv_heads: int,
        key_size: int,
        value_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> CacheShape:
        """Create the shape of equal layers, each of which attends once."""
        layer = LayerShape(num_kv_heads, key_size, value_size)
        return cls((layer,) * num_layers, dtype, device, tuple(range(num_layers)))

    @property
    def num_layers(self) -> int:
        """Number of layers that have keys and values of their own."""
        return len(self.layers)

    @property
    def is_uniform(self) -> bool:
        """Whether all layers are alike, and each attends once, to its own cache."""
        return len(set(self.layers)) <= 1 and self.calls == tuple(range(len(self.layers)))

    @property
    def layer(self) -> LayerShape:
        """Shape of any layer. Raises `ValueError` if they differ."""
        if len(set(self.layers)) != 1:
            raise ValueError(f"the cache of a layer is not like that of another: {sorted(map(str, set(self.layers)))}")
        return self.layers[0]

    @property
    def parts(self) -> list[tuple[LayerShape, list[int]]]:
        """Distinct layer shapes, each with the layers that have it, in order."""
        found: dict[LayerShape, list[int]] = {}
        for number, layer in enumerate(self.layers):
            found.setdefault(layer, []).append(number)
        return list(found.items())

    @property
    def numbers_per_token(self) -> int:
        """Number of elements per token, over all layers."""
        return sum(layer.numbers_per_token for layer in self.layers)


@dataclass(frozen=True, slots=True)
class CacheOrder:
    """Memory order of keys and values that a backend wants.

    Attributes:
        block: columns per block of values, a block being rows of dimensions: [..., capacity / block, D, block]. None:
            values are in the order of keys, [..., capacity, D].
        fills: fresh memory holds `UNUSED_FILL`; else anything, for an attention that reads only columns in use.
        by_address: the attention finds each prompt's keys and values by their address, so that one launch serves all
            cohorts (attention/step_tables.py).
    """

    block: int | None = None
    fills: bool = True
    by_address: bool = False

    def room_for(self, num_columns: int) -> int:
        """Round a number of columns up to whole blocks, or to sizes whose freed memory fits other prompts."""
        multiple = _SLOT_MULTIPLE if self.by_address else self.block or 1
        return -(-num_columns // multiple) * multiple

    def tensors(
        self, shape: CacheShape, memory: Tensor, num_prompts: int, capacity: int
    ) -> list[tuple[Tensor, Tensor]]:
        """Return keys [layers, P, H_kv, capacity, D] and values of each of `shape.parts`, as views of `memory`.

        They take its first numbers, one part after the other."""
        found, start = [], 0
        for layer, numbers in shape.parts:
            heads = (len(numbers), num_prompts, layer.num_kv_heads)
            num_rows = math.prod(heads) * capacity
            middle = start + num_rows * layer.key_size
            stop = middle + num_rows * layer.value_size
            places: tuple[int, ...] = (capacity, layer.value_size)
            if self.block is not None:
                places = (capacity // self.block, layer.value_size, self.block)
            keys = memory[start:middle].view(*heads, capacity, layer.key_size)
            found.append((keys, memory[middle:stop].view(*heads, *places)))
            start = stop
        return found

    def places_of(self, num_columns: int) -> int:
        """Return the extent of the first columns of values, along the dimension after a head's: columns or blocks."""
        return num_columns if self.block is None else -(-num_columns // self.block)

    def join_values(self, out: Tensor, first: Tensor, num_first: int, second: Tensor, num_second: int) -> None:
        """Write the first columns of `first`, and those of `second` after them, to `out`; pad its last block with 0.

        Args:
            out, first, second: values in this order, [layers, H_kv, ...]; all of `out` is written.
        """
        if self.block is None:
            out[:, :, :num_first], out[:, :, num_first:] = first[:, :, :num_first], second[:, :, :num_second]
            return
        whole = num_first // self.block  # blocks that stay as they are; the others are cut anew
        out[:, :, :whole] = first[:, :, :whole]
        rest = num_first - whole * self.block
        columns = [_columns(first[:, :, whole:])[:, :, :rest], _columns(second)[:, :, :num_second]]
        *outer, num_blocks, size, block = out[:, :, whole:].shape
        padding = num_blocks * block - rest - num_second
        columns.append(out.new_zeros(*outer, padding, size))
        out[:, :, whole:] = torch.cat(columns, dim=2).view(*outer, num_blocks, block, size).transpose(3, 4)


def by_layer(shape: CacheShape, parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """Return keys and values of each layer, from those of the shape's parts [layers, ...]."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for (_, layers), (keys, values) in zip(shape.parts, parts, strict=True):
        found |= zip(layers, zip(keys, values, strict=True), strict=True)
    ordered = [found[layer] for layer in range(shape.num_layers)]
    return [keys for keys, _ in ordered], [values for _, values in ordered]


def _columns(values: Tensor) -> Tensor:
    """Unblock values: [layers, H_kv, blocks, D, columns of a block] -> [layers, H_kv, columns, D]."""
    return values.transpose(3, 4).flatten(2, 3)


class CacheBlock:
    """Keys and values of P prompts, per layer [P, H_kv, capacity, D], the values in the pool's order."""

    def __init__(self, shape: CacheShape, order: CacheOrder, memory: Tensor, num_prompts: int, capacity: int) -> None:
        """Take the first numbers of `memory`."""
        self.memory = memory
        self._shape, self._order = shape, order
        self._parts = order.tensors(shape, memory, num_prompts, capacity)
        self.keys, self.values = by_layer(shape, self._parts)

    def copy_prompts(self, rows: IntArray, source: CacheBlock, source_rows: IntArray, num_columns: IntArray) -> None:
        """Copy prompts of another block into `rows`: at least the first `num_columns` of each, in all layers."""
        if self.memory.device.type == "cpu":
            for to, from_, width in zip(rows.tolist(), source_rows.tolist(), num_columns.tolist(), strict=True):
                self._copy(to, source, from_, width)
        elif len(rows):  # on a GPU, copying more is cheaper than another call
            to, from_ = (to_device(index, self.memory.device) for index in (rows, source_rows))
            self._copy(to, source, from_, int(num_columns.max()))

    def _copy(self, to: int | Tensor, source: CacheBlock, from_: int | Tensor, num_columns: int) -> None:
        places = self._order.places_of(num_columns)
        for (keys, values), (source_keys, source_values) in zip(self._parts, source._parts, strict=True):
            keys[:, to, :, :num_columns] = source_keys[:, from_, :, :num_columns]
            values[:, to, :, :places] = source_values[:, from_, :, :places]

    def copy_of_prompt(
        self, row: int, num_columns: int, before: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Copy a prompt's first keys, per layer [H_kv, C, D], and values in their order, to memory of their own.

        After the last column there is room up to the end of its block, where values are 0.

        Args:
            before: such a copy, whose columns come first.
        """
        first = 0 if before is None or not before[0] else before[0][0].shape[1]
        stop = first + num_columns
        order, room = self._order, self._order.room_for(stop)
        memory = self.memory.new_zeros(room * self._shape.numbers_per_token)
        copies = [(keys[:, 0], values[:, 0]) for keys, values in order.tensors(self._shape, memory, 1, room)]
        for (_, layers), (keys, values), own in zip(self._shape.parts, copies, self._parts, strict=True):
            keys[:, :, first:stop] = own[0][:, row, :, :num_columns]
            own_values = own[1][:, row, :, : order.places_of(num_columns)]
            if before is not None:
                first_keys, first_values = (torch.stack([tensors[layer] for layer in layers]) for tensors in before)
                keys[:, :, :first] = first_keys
                order.join_values(values, first_values, first, own_values, num_columns)
            else:
                values[:] = own_values
                if order.block is not None and room > num_columns:
                    values[..., -1, :, num_columns - room :] = 0
        all_keys, all_values = by_layer(self._shape, copies)
        return [keys[:, :stop] for keys in all_keys], all_values


class CachePool:
    """Allocator of cache blocks, which reuses the memory of freed ones.

    On a CPU blocks and slots are parts of one large piece of address space, the arena. Each takes the lowest place that
    has room. What fits nowhere comes from the system. The cost of memory is its first touch: a page fault for every
    4 KiB, for which threads wait for each other, and a cohort takes some hundred MiB. Pages that were touched once are
    used again, and those that are not needed are never touched. Nothing is returned to the system while the pool lives.
    On a GPU torch does the like, for prefixes and the states of other layers as well.
    """

    def __init__(self, shape: CacheShape, order: CacheOrder | None = None, *, max_tokens: int = 0) -> None:
        """Start without memory.

        Args:
            order: None: the order that all of torch's backends can read.
            max_tokens: usual number of tokens of all blocks in use, on a CPU: the arena's size.
        """
        self.shape = shape
        self.order = order or CacheOrder()
        self.num_used = 0
        """Number of bytes of blocks and slots that are in use."""
        self._max_tokens = max_tokens if shape.device.type == "cpu" else 0
        self._arena: Arena | None = None

    def take(self, num_prompts: int, capacity: int) -> CacheBlock:
        """Allocate a block. `capacity`: as `order.room_for` returns it."""
        size = num_prompts * capacity * self.shape.numbers_per_token
        memory = self._take(size * self.shape.dtype.itemsize).view(self.shape.dtype)
        if self.order.fills:
            # Also memory that was used before: a NaN that a model made of one prompt must not reach another.
            memory.fill_(UNUSED_FILL)
        return CacheBlock(self.shape, self.order, memory, num_prompts, capacity)

    def take_slot(self, capacity: int) -> CacheSlot:
        """Allocate a slot. `capacity`: as `order.room_for` returns it."""
        return CacheSlot(self.shape, self._take(CacheSlot.num_bytes(self.shape, capacity)), capacity)

    def _take(self, size: int) -> Tensor:
        """Allocate memory, uint8 [size]."""
        if self._arena is None and self._max_tokens:
            self._arena = Arena(CacheSlot.num_bytes(self.shape, self._max_tokens))
        memory = self._arena.take(size) if self._arena else None
        if memory is None:
            memory = torch.empty(size, dtype=torch.uint8, device=self.shape.device)
        self.num_used += size
        return memory

    def give_back(self, memory: Tensor) -> None:
        """Free a block's or slot's memory, once. Launched kernels may still read it: writes are queued after them."""
        self.num_used -= memory.nbytes
        if self._arena:
            self._arena.give_back(memory)

    def limit(self, max_tokens: int) -> None:
        """Set the usual number of tokens of all blocks from now on, while none is in use."""
        self._max_tokens = max_tokens if self.shape.device.type == "cpu" else 0
        self._arena = None

    def clear(self) -> None:
        """Drop all blocks and free the memory: after an error it is not known which of them were given back."""
        self._arena = None
        self.num_used = 0


class Arena:
    """A piece of CPU memory, from which parts are taken and given back."""

    def __init__(self, size: int) -> None:
        """Reserve `size` bytes; none if the system does not provide so much address space."""
        try:
            self._memory = torch.empty(size, dtype=torch.uint8)
        except (MemoryError, RuntimeError):  # torch's CPU allocator has no class of its own
            logger.info("no address space for %d bytes of cache at once", size)
            self._memory = torch.empty(0, dtype=torch.uint8)
        self._pages = RangesInUse(len(self._memory) // PAGE)
        self._taken: dict[int, tuple[int, int]] = {}  # first page and number of pages, by address

    def take(self, size: int) -> Tensor | None:
        """Take `size` bytes, from the lowest place that has room; return None if there is none."""
        count = -(-size // PAGE)
        try:
            first = self._pages.take(count)
        except MemoryError:
            return None
        part = self._memory[first * PAGE : first * PAGE + size]
        self._taken[part.data_ptr()] = first, count
        return part

    def give_back(self, part: Tensor) -> None:
        """Free a part; ignore one that is not from this arena."""
        if (place := self._taken.pop(part.data_ptr(), None)) is not None:
            self._pages.give_back(*place)


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

    @staticmethod
    def num_bytes(shape: CacheShape, capacity: int) -> int:
        """Return the bytes of a slot with room for `capacity` columns."""
        return seen_offset(shape, capacity) + 16 * capacity

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

    def copy_to(self, larger: CacheSlot, used: int) -> None:
        """Copy the first `used` columns."""
        larger.keys[:, :, :used] = self.keys[:, :, :used]
        larger.values[:, :, :used] = self.values[:, :, :used]
        larger.seen[:, :used] = self.seen[:, :used]


def seen_offset(shape: CacheShape, capacity: Count) -> Count:
    """Return the offset in bytes of a slot's scopes and positions; of one slot, or of several."""
    num_bytes = capacity * (shape.numbers_per_token * shape.dtype.itemsize)
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
