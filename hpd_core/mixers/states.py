"""Memory of one cohort's layers beside keys and values: a state of every trunk, and columns of branches' tokens.

A prompt has the columns 0 to W - 1 for the last W tokens of its trunk, which a convolution looks back at. After them
comes one for each token of its branches. The visibility of a column is kept on the host (hpd_core/layout.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.layout import PUBLIC, IntArray
from hpd_core.mixers.step_plan import BranchTokens, SeenColumns, TrunkTokens, branch_grids, trunk_tokens
from hpd_core.system.device import to_device


@dataclass(frozen=True, slots=True)
class MixerShape:
    """Sizes of what one layer keeps.

    Attributes:
        channels: number of values per token that its convolution takes.
        kernel: number of tokens that it looks at, the token itself included.
        key_heads, heads, key_size, value_size: sizes of its recurrent state, `heads` matrices [key_size, value_size] in
            fp32; 0 if it has none.
        decay_size: 1 if a state decays as a whole, key_size if each of its keys' dimensions decays by itself.
        chunk: number of trunk tokens that transformers' function takes at a time, each beside each.
        dtype, device: of the convolution's input.
    """

    channels: int
    kernel: int
    dtype: torch.dtype
    device: torch.device
    key_heads: int = 0
    heads: int = 0
    key_size: int = 0
    value_size: int = 0
    decay_size: int = 1
    chunk: int = 64

    @property
    def bytes_in_a_step(self) -> int:
        """Bytes for a trunk token while the function takes it, all of it in fp32: an estimate from above.

        It counts pairs of tokens of a chunk in each head, for each dimension if these decay apart, and queries, keys
        and values. The numbers of copies were measured in steps of a thousand tokens.
        """
        if self.value_size == 1:  # channels, each by itself
            return 16 * self.heads * _WIDE.itemsize
        pairs = self.chunk * (4 * self.decay_size if self.decay_size > 1 else 10)
        return self.heads * (pairs + 8 * (2 * self.key_size + self.value_size)) * _WIDE.itemsize

    @property
    def bytes_per_trunk(self) -> int:
        """Bytes for a prompt without its branches: its last tokens have whole columns."""
        return (self.kernel - 1) * self.bytes_per_column + self.bytes_per_state

    @property
    def bytes_per_state(self) -> int:
        """Bytes for a prompt without any columns."""
        return self.heads * self.key_size * self.value_size * _WIDE.itemsize

    @property
    def bytes_per_column(self) -> int:
        """Bytes for a token of a branch."""
        numbers = self.key_heads * self.key_size + self.heads * (self.value_size + self.decay_size)
        return self.channels * self.dtype.itemsize + (numbers if self.heads else 0) * _WIDE.itemsize


_WIDE = torch.float32
"""Dtype of recurrent states, whatever the model computes in: they are sums of thousands of tokens."""


class LayerMemory:
    """Tensors of one layer. Rows are prompts.

    Attributes:
        columns: tensors [P, C, ...]: `inputs` of the convolution; `keys`, `updates` and `decays` of the state.
        states: tensors [P, ...]: `state`.
    """

    def __init__(self, columns: dict[str, Tensor], states: dict[str, Tensor]) -> None:
        self.columns, self.states = columns, states

    @classmethod
    def new(cls, shape: MixerShape, num_prompts: int, num_columns: int) -> LayerMemory:
        """Return the memory of prompts that have not fed anything: all is 0."""

        def zeros(*sizes: int, dtype: torch.dtype = _WIDE) -> Tensor:
            return torch.zeros(num_prompts, *sizes, dtype=dtype, device=shape.device)

        columns = {"inputs": zeros(num_columns, shape.channels, dtype=shape.dtype)}
        if not shape.heads:
            return cls(columns, {})
        columns["keys"] = zeros(num_columns, shape.key_heads, shape.key_size)
        columns["updates"] = zeros(num_columns, shape.heads, shape.value_size)
        columns["decays"] = zeros(num_columns, shape.heads, shape.decay_size)
        return cls(columns, {"state": zeros(shape.heads, shape.key_size, shape.value_size)})

    def rows(self, picked: Tensor, num_columns: int) -> LayerMemory:
        """Return the picked prompts, with room for `num_columns` columns."""

        def moved(tensor: Tensor) -> Tensor:
            width = min(num_columns, tensor.shape[1])
            room = tensor.new_zeros(len(picked), num_columns, *tensor.shape[2:])
            room[:, :width] = tensor[:, :width].index_select(0, picked)
            return room

        columns = {name: moved(tensor) for name, tensor in self.columns.items()}
        return LayerMemory(columns, {name: each.index_select(0, picked) for name, each in self.states.items()})

    @staticmethod
    def joined(parts: Sequence[LayerMemory]) -> LayerMemory:
        """Join the prompts of all parts, which have equally many columns."""
        return LayerMemory(
            {name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns},
            {name: torch.cat([part.states[name] for part in parts]) for name in parts[0].states},
        )

    def part(self, first: int, size: int) -> LayerMemory:
        """Return the memory of `size` heads of a recurrent state, as views. Each such part has keys of its own."""
        part, heads = slice(first // size, first // size + 1), slice(first, first + size)
        columns = {name: self.columns[name][:, :, heads] for name in ("updates", "decays")}
        return LayerMemory(
            columns | {"keys": self.columns["keys"][:, :, part]}, {"state": self.states["state"][:, heads]}
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in (*self.columns.values(), *self.states.values()))


_GIVEN_AWAY = LayerMemory({}, {})


@dataclass(frozen=True, slots=True, eq=False)
class TrunkState:
    """State of a trunk after its `num_tokens` tokens, in all layers, for those that follow it."""

    layers: Sequence[LayerMemory]
    num_tokens: int


class MixerCache:
    """States and columns of P prompts, all layers."""

    def __init__(
        self,
        shapes: Sequence[MixerShape],
        layers: Sequence[LayerMemory],
        seen: SeenColumns,
        lengths: IntArray,
        most: IntArray,
    ) -> None:
        """Take the `shapes` of all layers.

        Args:
            lengths: int64 [P], the trunks so far in tokens.
            most: int64 [P], the most columns that the branches of each may take.
        """
        self.shapes, self.layers, self._seen, self._lengths = shapes, list(layers), seen, lengths
        self._most = most
        self._last = np.zeros(0, dtype=np.int64), np.zeros_like(lengths)  # tokens of branches of the last step

    @classmethod
    def for_prompts(
        cls,
        shapes: Sequence[MixerShape],
        before: Sequence[TrunkState | None],
        num_columns: int,
        most: IntArray,
    ) -> MixerCache:
        """Return the cache of prompts that have not fed anything yet.

        Args:
            before: for each, the trunk that it follows; it is fast if those that follow the same are neighbours.
            num_columns: number of columns worth reserving for branches.
            most: int64 [P], the most columns that the branches of each may take.
        """
        width = window_of(shapes)
        layers = [LayerMemory.new(shape, len(before), width + num_columns) for shape in shapes]
        lengths = np.array([state.num_tokens if state else 0 for state in before], dtype=np.int64)
        row = 0
        for state, same in groupby(before):
            rows = slice(row, row := row + len(list(same)))
            for layer, source in zip(layers, state.layers if state else (), strict=False):
                for name, tensor in layer.columns.items():
                    tensor[rows, :width] = source.columns[name][0]
                for name, tensor in layer.states.items():
                    tensor[rows] = source.states[name][0]
        return cls(shapes, layers, SeenColumns.of_trunks(lengths, width, width + num_columns), lengths, most)

    @classmethod
    def merge(cls, caches: Sequence[MixerCache], picked: Sequence[IntArray], order: IntArray) -> MixerCache:
        """Merge several caches, which become unusable, into one.

        Args:
            picked: for each cache, the rows to take along.
            order: int64 [P], where each row comes from among all of these.
        """
        pairs = list(zip(caches, picked, strict=True))
        capacity = max(cache._seen.width + int(cache.used.max(initial=0)) for cache in caches)
        first = caches[0]
        seen = SeenColumns.joined([cache._seen.rows(rows, capacity) for cache, rows in pairs]).rows(order, capacity)
        lengths, most = (
            np.concatenate([of(cache)[rows] for cache, rows in pairs])[order]
            for of in (attrgetter("_lengths"), attrgetter("_most"))
        )
        *places, sorted_ = (to_device(each, first._device) for each in (*picked, order))
        layers = []
        for number in range(len(first.layers)):  # one after the other, for all are large
            parts = [cache.layers[number].rows(own, capacity) for cache, own in zip(caches, places, strict=True)]
            for cache in caches:
                cache.layers[number] = _GIVEN_AWAY
            layers.append(LayerMemory.joined(parts).rows(sorted_, capacity))
        return cls(first.shapes, layers, seen, lengths, most)

    def keep(self, rows: IntArray) -> None:
        """Keep only some of the rows."""
        self._lengths, self._most = self._lengths[rows], self._most[rows]
        self._move(rows, self._seen.width + int(self._seen.used[rows].max(initial=0)))

    def _move(self, rows: IntArray, capacity: int) -> None:
        """Keep only some of the rows, with `capacity` columns; layer by layer, because all are large."""
        picked = to_device(rows, self._device)
        for number, layer in enumerate(self.layers):
            self.layers[number] = layer.rows(picked, capacity)
        self._seen = self._seen.rows(rows, capacity)

    @property
    def _device(self) -> torch.device:
        return self.shapes[0].device

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes."""
        return sum(layer.num_bytes for layer in self.layers)

    @property
    def used(self) -> IntArray:
        """Number of branch columns of each prompt, int64 [P]."""
        return self._seen.used

    def bytes_for(self, num_more: IntArray | int) -> int:
        """Return the bytes that it takes at most when `num_more` more branch columns are in use, int64 [P] or one
        number for all. Some of them may be tokens of trunks, which take no column.
        """
        used = np.minimum(self.used + num_more, self._most)
        needed = self._seen.width + int(used.max(initial=0))
        more = grown(needed) - self._seen.capacity if needed > self._seen.capacity else 0
        column = sum(shape.bytes_per_column for shape in self.shapes)
        return self.num_bytes + len(self._lengths) * more * column

    def append(
        self, prompts: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray, start: int
    ) -> MixerPlan:
        """Assign each new token its place.

        Args:
            prompts, scopes, lasts, positions: int64 [t], as in `NewTokens`: for a prompt those of its trunk first.
            start: where the cohort's stretch of the packed row begins.
        """
        is_trunk = scopes == PUBLIC
        of_trunk, of_branches = np.nonzero(is_trunk)[0], np.nonzero(~is_trunk)[0]
        counts = np.bincount(prompts[of_branches], minlength=len(self._lengths))
        trunk = branches = None
        if len(of_trunk):
            trunk = trunk_tokens(start + of_trunk, prompts[of_trunk], self._seen.width, self._device)
            self._lengths = self._lengths + np.bincount(prompts[of_trunk], minlength=len(self._lengths))
            self._seen.move_tails(self._lengths)
        if len(of_branches):
            self._reserve(self._seen.used + counts)
            given = (each[of_branches] for each in (prompts, scopes, lasts, positions))
            branches = self._branch_tokens(start + of_branches, *given)
        self._last = of_branches, counts
        return MixerPlan(self, trunk, branches)

    def _branch_tokens(
        self, rows: IntArray, prompts: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray
    ) -> BranchTokens:
        columns, pairs, nearest = self._seen.add(prompts, scopes, lasts, positions)
        capacity, width = self._seen.capacity, self._seen.width
        ancestors = prompts[:, None] * capacity + nearest
        device = self._device
        grids = branch_grids(rows, prompts, columns - width, positions, pairs, device)
        whose, stored, where, before = (to_device(each, device) for each in (prompts, columns, rows, ancestors))
        return BranchTokens(whose, stored, where, before, grids)

    def _reserve(self, used: IntArray) -> None:
        """Make room for `used` branch columns, int64 [P], if there is none."""
        needed = self._seen.width + int(used.max())
        if needed > self._seen.capacity:
            self._move(np.arange(len(used)), max(needed, grown(self._seen.capacity)))

    def reject(self, wrong: npt.NDArray[np.bool_]) -> None:
        """Hide those of the last step's t tokens that are wrong; the next ones reuse the last columns."""
        of_branches, counts = self._last
        self._seen.reject(wrong[of_branches], counts)

    def trunk_states(self) -> list[TrunkState]:
        """Return the state of each trunk of prompts without branches, in memory of its own."""
        width = self._seen.width
        rows = to_device(np.arange(len(self._lengths))[:, None], self._device)
        states = [[layer.rows(row, width) for layer in self.layers] for row in rows]
        return [TrunkState(*each) for each in zip(states, self._lengths.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class MixerPlan:
    """Places of one cohort's tokens of a step; those of the packed row from `start` on.

    Attributes:
        cache: the cohort's memory.
        trunk, branches: None if there are none in this step.
    """

    cache: MixerCache
    trunk: TrunkTokens | None
    branches: BranchTokens | None


def grown(num_columns: int) -> int:
    """Return a capacity with a quarter to spare. It is used when columns run out: most values have ended, few need
    more.
    """
    return num_columns + num_columns // 4


def window_of(shapes: Iterable[MixerShape]) -> int:
    """Return W, the number of trunk tokens that some layer looks back at."""
    return max((shape.kernel - 1 for shape in shapes), default=0)
