"""Plan of one step's attention, built once for all layers: who sees whom, and where keys and values go.

A prompt's KV is read once for all its tokens: the query rows of all its branches, and of all query heads that share a
KV head (GQA), are folded into one matrix. A prefix's KV is read once for all prompts that share it: their rows are one
matrix, too. Such a row has two parts of scores, over the prefix and over its prompt's own columns, and one softmax over
both. Masks are added to scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.attention.kv_cache import CacheSlot
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray, visible
from hpd_core.system.device import to_device

Kernel = TypeVar("Kernel")

TILE_SCORES = {"cpu": 2**19, "cuda": 2**26}
"""Scores of one tile: 2 MiB in fp32 fit in the caches of a few CPU cores; a GPU prefers large matrices."""

_PADDING = {"cpu": (0.25, 16)}
"""Padding rows that a tile may have: a share of its tokens, or a number that costs less than another call. On a GPU,
computing more is cheaper than another call."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefixCache:
    """Keys and values of a category's prefix, per layer [H_kv, L, D]; at the positions 0 to L - 1, seen by all.

    Their layout is that of `CacheBlock.copy_of_prompt`: values in the order that the backend wants.
    """

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    mixing: Any = None
    """State of the trunk in layers beside attention (mixers/states.py), if there are any."""
    places: list[Any] = field(default_factory=list, init=False)
    """Their addresses, cached by the backend."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens, L."""
        return self.keys[0].shape[1] if self.keys else int(self.mixing.num_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class AddressedPlan:
    """Places of one cohort's tokens of this step, for an attention that finds keys and values by address.

    It stays on the host: the tables of all cohorts go to the device at once (attention/step_tables.py). P prompts, t
    tokens.

    Attributes:
        start, stop: the cohort's stretch of the packed row. Tokens of one prompt are neighbours.
        counts, used: int64 [P], the tokens of each prompt in this step, and its columns in use.
        prompts, columns, scopes, lasts, positions, sights: int64 [t], for each token its prompt, the column that it is
            stored in, who sees it, and up to which position it sees. It sees only leading columns after its own. If
            it does, all tokens in a tile with it see them.
        num_leading, leading_positions: int64 [P], number of each prompt's first columns that are public and at
            consecutive positions, and the position of column 0.
        leads_only: bool [P], whether these are all of its public columns.
        is_prefill: whether the tokens are the prompts' own: those of a branch are consecutive, all after the leading
            columns.
        slots: for each prompt, the slot of its keys and values.
        hidden_prompts, hidden_columns: int64 [h], columns that no token sees from now on.
        prefixes: for each prompt, or None. Tokens after a prefix have positions from its length on.
        mixing: for layers beside attention (mixers/step_plan.py), if there are any.
    """

    start: int
    stop: int
    counts: IntArray
    used: IntArray
    prompts: IntArray
    columns: IntArray
    scopes: IntArray
    lasts: IntArray
    positions: IntArray
    sights: IntArray
    num_leading: IntArray
    leading_positions: IntArray
    leads_only: npt.NDArray[np.bool_]
    is_prefill: bool
    slots: Sequence[CacheSlot]
    hidden_prompts: IntArray
    hidden_columns: IntArray
    prefixes: Sequence[PrefixCache | None]
    mixing: Any = None


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Neighbouring prompts of a cohort, `start` to `stop`, and the prefix that they share, if any."""

    start: int
    stop: int
    prefix: PrefixCache | None


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of a cohort's attention: n neighbouring prompts of one group, R rows of each, t tokens.

    Attributes:
        prompts: range of its prompts.
        tokens: their range in the packed row: all they have in this step, or a part of a single prompt's.
        rows: int64 [n * R], the token of each query row, counted from the range's first; None if there is no padding.
        unrows: int64 [t], the query row of each token; None likewise.
        columns: the first C' own columns; none of its tokens sees any after them.
        bias: [n, 1, R * G, C'], the additive mask.
        prefix: prefix that is attended to beside the own columns.
        prefix_bias: [n, 1, R * G, L], or None if all tokens see all of it.
    """

    prompts: slice
    tokens: slice
    rows: Tensor | None
    unrows: Tensor | None
    columns: slice
    bias: Tensor
    prefix: PrefixCache | None
    prefix_bias: Tensor | None

    def fold(self, tokens: Tensor, num_kv_heads: int) -> Tensor:
        """Fold the packed row [T, H, D] into the tile's query rows [n, H_kv, R * G, D]."""
        own = tokens[self.tokens]
        # index_select moves whole rows, eight times faster on a CPU than indexing by brackets.
        rows = own if self.rows is None else own.index_select(0, self.rows)
        return fold(rows, self.prompts.stop - self.prompts.start, num_kv_heads)

    def unfold(self, folded: Tensor, out: Tensor) -> None:
        """Write the tile's query rows [n, H_kv, R * G, D_v] to their place in `out`, [T, H, D_v]."""
        rows = unfold(folded, out.shape[1])
        if self.unrows is None:
            out[self.tokens] = rows
        else:
            torch.index_select(rows, 0, self.unrows, out=out[self.tokens])


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Places of one cohort's tokens of this step. Built once per step, used by every layer.

    P prompts, R rows (the most tokens that a prompt has in this step), C columns of KV in use, t tokens.

    Attributes:
        start, stop: the cohort's stretch of the packed row; t = stop - start. Tokens of one prompt are neighbours.
        counts: int64 [P], the tokens of each prompt, on the host.
        used: int64 [P], the columns of each prompt that are in use, on the host.
        kv_prompts, kv_columns: int64 [t], contiguous: where each token's key and value are stored.
        q_scopes, q_sights: int64 [P, R]; padding rows are public and see position 0, so that they see something.
        k_scopes, k_lasts, k_positions: int64 [P, C]; columns not in use have a position that no token sees.
        keys, values: one tensor per layer, [P, H_kv, capacity, D]; values in the order that the backend wants.
        groups: all P prompts in order. Tokens after a prefix have positions from its length on.
        mixing: for layers beside attention (mixers/step_plan.py), if there are any.
    """

    start: int
    stop: int
    counts: IntArray
    used: IntArray
    kv_prompts: Tensor
    kv_columns: Tensor
    q_scopes: Tensor
    q_sights: Tensor
    k_scopes: Tensor
    k_lasts: Tensor
    k_positions: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    groups: Sequence[PromptGroup]
    mixing: Any = None
    _tiles: dict[tuple[int | None, int, int], list[Tile]] = field(default_factory=dict, init=False)
    _kernel: list[Any] = field(default_factory=list, init=False)

    def tiles(self, window: int | None, group: int, num_kv_heads: int) -> list[Tile]:
        """Return the cohort's attention in parts of about `TILE_SCORES` scores; equal layers share them."""
        key = (window, group, num_kv_heads)
        if key not in self._tiles:
            self._tiles[key] = [
                self._tile(part, prompts, rows, window, group)
                for part in self.groups
                for prompts, rows in self._cut(part, group * num_kv_heads)
            ]
        return self._tiles[key]

    def kernel(self, kind: Callable[[AttentionPlan], Kernel]) -> Kernel:
        """Return the cohort's attention by a kernel of ours, made of this plan by `kind`; all layers share it."""
        if not self._kernel:
            self._kernel.append(kind(self))
        kernel: Kernel = self._kernel[0]
        return kernel

    def forget_masks(self) -> None:
        """Drop masks once all layers are given to the device: they are large, and a plan lives for a step."""
        self._tiles.clear()

    def _cut(self, part: PromptGroup, num_heads: int) -> Iterator[tuple[slice, slice]]:
        """Cut a group into sets of whole prompts with similar numbers of tokens, or into rows of one large prompt."""
        num_columns = self.k_positions.shape[1] + (part.prefix.num_tokens if part.prefix else 0)
        most = max(1, TILE_SCORES.get(self.q_sights.device.type, 2**26) // (num_heads * num_columns))
        share, few = _PADDING.get(self.q_sights.device.type, (math.inf, 0))
        counts = self.counts.tolist()
        first = part.start
        while first < part.stop:
            num_rows = num_tokens = counts[first]
            stop = first + 1
            while stop < part.stop:
                rows, tokens = max(num_rows, counts[stop]), num_tokens + counts[stop]
                padded = (stop + 1 - first) * rows
                if padded > most or padded - tokens > max(few, share * tokens):
                    break
                num_rows, num_tokens, stop = rows, tokens, stop + 1
            num_parts = max(1, -(-num_rows // most))
            step = max(1, -(-num_rows // num_parts))
            for row in range(0, num_rows, step):  # none where all are finished
                yield slice(first, stop), slice(row, min(row + step, num_rows))
            first = stop

    def _tile(self, part: PromptGroup, prompts: slice, rows: slice, window: int | None, group: int) -> Tile:
        seen: Tensor = visible(  # own columns, bool [n, rows, C]
            self.q_scopes[prompts, rows, None],
            self.q_sights[prompts, rows, None],
            self.k_scopes[prompts, None, :],
            self.k_lasts[prompts, None, :],
            self.k_positions[prompts, None, :],
            window,
        )
        if seen.device.type == "cpu":
            last = seen.any(dim=1).any(dim=0).nonzero()[-1:]
            num_columns = int(last) + 1 if len(last) else 1
        else:  # reading `seen` would wait for the device
            num_columns = max(1, int(self.used[prompts].max()))
        prefix_bias = None
        if part.prefix is not None and window is not None:  # without a window all that follows a prefix sees it
            positions = torch.arange(part.prefix.num_tokens, device=seen.device)
            q_sights = self.q_sights[prompts, rows, None]
            seen_before = visible(PUBLIC, q_sights, PUBLIC, EVERYBODY, positions, window)
            prefix_bias = additive(seen_before, group)
        counts = self.counts[prompts]
        first = self.start + int(self.counts[: prompts.start].sum()) + rows.start
        here = np.minimum(counts, rows.stop) - rows.start  # only a single prompt's rows are cut
        tokens = slice(first, first + int(here.sum()))
        gather, scatter = _padding(here)
        return Tile(
            prompts,
            tokens,
            None if gather is None else to_device(gather, seen.device),
            None if scatter is None else to_device(scatter, seen.device),
            slice(num_columns),
            additive(seen[..., :num_columns], group),
            part.prefix,
            prefix_bias,
        )


def _padding(counts: IntArray) -> tuple[IntArray, IntArray] | tuple[None, None]:
    """Return the token of each padded row and the row of each token, for neighbours with `counts` tokens each.

    Both are None if there is no padding."""
    rows = np.arange(counts.max())
    is_token = rows < counts[:, None]
    if is_token.all():
        return None, None
    gather = np.where(is_token, (np.cumsum(counts) - counts)[:, None] + rows, 0)
    return gather.ravel(), np.flatnonzero(is_token)


def additive(seen: Tensor, group: int, dtype: torch.dtype = torch.float32, alignment: int = 1) -> Tensor:
    """Make an additive mask [n, 1, rows * G, C] of bool [n, rows, C]; its rows begin at multiples of `alignment`."""
    num_columns = seen.shape[-1]
    padded = -(-num_columns // alignment) * alignment
    bias = torch.zeros(*seen.shape[:-1], padded, dtype=dtype, device=seen.device)
    # Finite, so that a stretch in which nothing is visible does not become NaN inside the kernel.
    bias[..., :num_columns].masked_fill_(~seen, torch.finfo(dtype).min / 2)
    return bias.repeat_interleave(group, dim=1)[:, None, :, :num_columns]


def fold(rows: Tensor, num_prompts: int, num_kv_heads: int) -> Tensor:
    """Fold rows of one prompt, and heads of one KV head, into one matrix: [P * R, H, D] -> [P, H_kv, R * G, D]."""
    num_rows = rows.shape[0] // num_prompts
    group = rows.shape[1] // num_kv_heads
    split = rows.view(num_prompts, num_rows, num_kv_heads, group, -1)
    return split.transpose(1, 2).reshape(num_prompts, num_kv_heads, num_rows * group, -1)


def unfold(folded: Tensor, num_heads: int) -> Tensor:
    """Invert `fold`: [P, H_kv, R * G, D_v] -> [P * R, H, D_v]."""
    num_prompts, num_kv_heads, _, size = folded.shape
    group = num_heads // num_kv_heads
    split = folded.view(num_prompts, num_kv_heads, -1, group, size)
    return split.transpose(1, 2).reshape(-1, num_heads, size)
