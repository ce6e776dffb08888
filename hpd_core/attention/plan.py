"""What a step's attention needs to know, built once for all layers: who sees whom, and where keys and values go.

A prompt's KV is read once for all its tokens: the query rows of all its branches, and of all query heads that
share a KV head (GQA), are folded into one matrix. A prefix's KV is read once for all prompts that share it: their
rows are one matrix, too. Such a row has two parts of scores, over the prefix and over its prompt's own columns, and
one softmax over both.
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

from hpd_core.attention import masks
from hpd_core.attention.cache_slots import CacheSlot
from hpd_core.attention.folding import fold, unfold
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray, visible
from hpd_core.system.device import to_device

Kernel = TypeVar("Kernel")

TILE_SCORES = {"cpu": 2**19, "cuda": 2**26}
"""Scores of one tile: 2 MiB in fp32 stay in the caches of a few CPU cores; a GPU wants large matrices."""

_PADDING = {"cpu": (0.25, 16)}
"""Padding rows that a tile may have: a share of its tokens, or so few that a call more would cost as much. A GPU would
rather compute more than be called once more."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefixCache:
    """Keys and values of a category's prefix, per layer [H_kv, L, D]; at the positions 0 to L - 1, seen by all.

    As `CacheBlock.copy_of_prompt` gives them: values in the order that the way to attend wants.
    """

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    mixing: Any = None
    """Where the trunk has come to in layers beside attention (mixers/states.py), if there are any."""
    places: list[Any] = field(default_factory=list, init=False)
    """Where they are, as the way to attend has found out."""

    @property
    def num_tokens(self) -> int:
        """L."""
        return self.keys[0].shape[1] if self.keys else int(self.mixing.num_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class AddressedPlan:
    """Where one cohort's tokens of this step go, for an attention that finds keys and values by address.

    It stays on the host: the tables of all cohorts go to the device at once (attention/step_tables.py). P prompts, t
    tokens.

    Attributes:
        start, stop: the cohort's stretch of the packed row. Tokens of one prompt are neighbours.
        counts, used: int64 [P], the tokens of each prompt in this step, and its columns in use.
        prompts, columns, scopes, lasts, positions, sights: int64 [t], of each token: its prompt, the column that it is
            stored in, who sees it, and up to which position it sees: of columns behind its own none but leading ones,
            and then all tokens that are in a tile with it see them.
        num_leading, leading_positions: int64 [P]: of each prompt, so many of its first columns are public and at
            neighbouring positions, and the position of column 0.
        leads_only: bool [P], whether these are all of its public columns.
        is_prefill: the tokens are the prompts' own: those of a branch come one behind the other, all behind the leading
            columns.
        slots: of each prompt, where its keys and values are.
        hidden_prompts, hidden_columns: int64 [h], columns that nobody sees from now on.
        prefixes: of each prompt, or None. What follows a prefix stands behind it.
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
    """Neighbouring prompts of a cohort, `start` to `stop`, and the prefix that they share, if they do."""

    start: int
    stop: int
    prefix: PrefixCache | None


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of a cohort's attention: n neighbouring prompts of one group, R rows of each, t tokens.

    Attributes:
        prompts: which.
        tokens: their stretch of the packed row: all they have in this step, or a part of a single prompt's.
        rows: int64 [n * R], the token of each query row, counted from the stretch's first; None where there is no
            padding.
        unrows: int64 [t], the query row of each token; None likewise.
        columns: the first C' own columns; behind them nobody here sees anything.
        bias: [n, 1, R * G, C'], the additive mask.
        prefix: what is attended to beside the own columns.
        prefix_bias: [n, 1, R * G, L], or None where everybody sees all of it.
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
        """The packed row [T, H, D] -> the tile's query rows [n, H_kv, R * G, D]."""
        own = tokens[self.tokens]
        # index_select moves whole rows, eight times faster on a CPU than indexing by brackets.
        rows = own if self.rows is None else own.index_select(0, self.rows)
        return fold(rows, self.prompts.stop - self.prompts.start, num_kv_heads)

    def unfold(self, folded: Tensor, out: Tensor) -> None:
        """The tile's query rows [n, H_kv, R * G, D_v] into their place in `out`, [T, H, D_v]."""
        rows = unfold(folded, out.shape[1])
        if self.unrows is None:
            out[self.tokens] = rows
        else:
            torch.index_select(rows, 0, self.unrows, out=out[self.tokens])


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Where one cohort's tokens of this step go. Built once per step, used by every layer.

    P prompts, R rows (the most tokens that a prompt has in this step), C columns of KV in use, t tokens.

    Attributes:
        start, stop: the cohort's stretch of the packed row; t = stop - start. Tokens of one prompt are neighbours.
        counts: int64 [P], the tokens of each prompt, on the host.
        used: int64 [P], the columns of each prompt that are in use, on the host.
        rows: int64 [P * R], the token of each query row; padding rows repeat token 0.
        unrows: int64 [t], the query row of each token.
        kv_prompts, kv_columns: int64 [t], contiguous: where each token's key and value are stored.
        q_scopes, q_sights: int64 [P, R]; padding rows are public and see position 0, so that they see something.
        k_scopes, k_lasts, k_positions: int64 [P, C]; columns not in use have a position that nobody sees.
        keys, values: one tensor per layer, [P, H_kv, capacity, D]; values in the order that the way to attend wants.
        groups: all P prompts in order. What follows a prefix stands behind it: at positions from its length on.
        mixing: for layers beside attention (mixers/step_plan.py), if there are any.
    """

    start: int
    stop: int
    counts: IntArray
    used: IntArray
    rows: Tensor
    unrows: Tensor
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
    _biases: dict[tuple[int | None, int, torch.dtype], Tensor] = field(default_factory=dict, init=False)
    _tiles: dict[tuple[int | None, int, int], list[Tile]] = field(default_factory=dict, init=False)
    _kernel: list[Any] = field(default_factory=list, init=False)

    def bias(self, window: int | None, group: int, dtype: torch.dtype) -> Tensor:
        """The additive mask [P, 1, R * G, C] over the own columns, for folded query rows; equal layers share it."""
        key = (window, group, dtype)
        if key not in self._biases:
            self._biases[key] = masks.additive(
                self._seen(slice(None), slice(None), window), group, dtype, masks.ALIGNMENT
            )
        return self._biases[key]

    def tiles(self, window: int | None, group: int, num_kv_heads: int) -> list[Tile]:
        """The cohort's attention in parts of about `TILE_SCORES` scores; equal layers share them."""
        key = (window, group, num_kv_heads)
        if key not in self._tiles:
            self._tiles[key] = [
                self._tile(part, prompts, rows, window, group)
                for part in self.groups
                for prompts, rows in self._cut(part, group * num_kv_heads)
            ]
        return self._tiles[key]

    def kernel(self, kind: Callable[[AttentionPlan], Kernel]) -> Kernel:
        """The cohort's attention by a kernel of ours, made of this plan by `kind`; all layers have the same."""
        if not self._kernel:
            self._kernel.append(kind(self))
        kernel: Kernel = self._kernel[0]
        return kernel

    def forget_masks(self) -> None:
        """When all layers have been given to the device: they are large, and the plan is kept until the step ends."""
        self._biases.clear()
        self._tiles.clear()

    def _cut(self, part: PromptGroup, num_heads: int) -> Iterator[tuple[slice, slice]]:
        """Several whole prompts of about as many tokens at a time, or rows of one where it is too large."""
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
        seen = self._seen(prompts, rows, window)
        if seen.device.type == "cpu":
            last = seen.any(dim=1).any(dim=0).nonzero()[-1:]
            num_columns = int(last) + 1 if len(last) else 1
        else:  # to look would be to wait for the device
            num_columns = max(1, int(self.used[prompts].max()))
        prefix_bias = None
        if part.prefix is not None and window is not None:  # without a window all that follows a prefix sees it
            positions = torch.arange(part.prefix.num_tokens, device=seen.device)
            q_sights = self.q_sights[prompts, rows, None]
            seen_before = visible(PUBLIC, q_sights, PUBLIC, EVERYBODY, positions, window)
            prefix_bias = masks.additive(seen_before, group, torch.float32)
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
            masks.additive(seen[..., :num_columns], group, torch.float32),
            part.prefix,
            prefix_bias,
        )

    def _seen(self, prompts: slice, rows: slice, window: int | None) -> Tensor:
        """Bool [n, rows, C]: which own columns the tokens see."""
        seen: Tensor = visible(
            self.q_scopes[prompts, rows, None],
            self.q_sights[prompts, rows, None],
            self.k_scopes[prompts, None, :],
            self.k_lasts[prompts, None, :],
            self.k_positions[prompts, None, :],
            window,
        )
        return seen


def _padding(counts: IntArray) -> tuple[IntArray, IntArray] | tuple[None, None]:
    """For neighbours of so many tokens each: the token of each of their padded rows, and the row of each token."""
    rows = np.arange(counts.max())
    is_token = rows < counts[:, None]
    if is_token.all():
        return None, None
    gather = np.where(is_token, (np.cumsum(counts) - counts)[:, None] + rows, 0)
    return gather.ravel(), np.flatnonzero(is_token)
