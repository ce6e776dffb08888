"""Attention over packed rows: the function that transformers calls in place of its own.

The model runs over one packed row of tokens, [1, T]; it knows nothing of prompts. For every layer it calls
`packed_attention` with that row's queries, keys and values. The `PackedBatch` that travels along says which
stretch of the row belongs to which cohort; each cohort stores its keys and values and attends on its own.

A prompt's KV is read once for all its tokens: the query rows of all its branches, and of all query heads that
share a KV head (GQA), are folded into one matrix. A prefix's KV is read once for all prompts that share it: their
rows are one matrix, too. Such a row has two parts of scores, over the prefix and over its prompt's own columns, and
one softmax over both.

Four ways to attend. `sdpa` is torch's fused kernel; it takes no shared prefix. `eager` is made of plain matrix
products, in tiles whose scores stay in the caches: on a CPU twice as fast, and it takes softcap, sinks and prefixes.
`native` is a kernel in C++ (native/attention.cpp), for CPUs; it takes all of that, too, and needs neither tiles nor
masks, for it decides by positions and scopes who sees whom. `triton` is the same for GPUs (triton_attention.py);
it reads a prefix once for every prompt, but from one place.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hpd_core.cache import CacheOrder, CacheShape
from hpd_core.errors import ModelError
from hpd_core.layout import PUBLIC, IntArray, visible
from hpd_core.native import library
from hpd_core.native.attention import NativeAttention
from hpd_core.transfer import to_device

if TYPE_CHECKING:
    from hpd_core.triton_attention import TritonAttention

logger = logging.getLogger(__name__)

Way = Literal["sdpa", "eager", "native", "triton"]

ATTENTION_NAME = "hpd_packed"
"""The name under which the function is registered with transformers."""

TILE_SCORES = {"cpu": 2**19, "cuda": 2**26}
"""Scores of one tile: 2 MiB in fp32 stay in the caches of a few CPU cores; a GPU wants large matrices."""

_ALIGNMENT = 8
"""Of the rows of a mask, in numbers: torch would copy one that is not aligned, in every layer, for its memory-efficient
kernel."""

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
    places: list[tuple[int, IntArray]] = field(default_factory=list, init=False)
    """What `native/attention.py` has found out about them."""

    @property
    def num_tokens(self) -> int:
        """L."""
        return self.keys[0].shape[1]


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
        q_scopes, q_positions: int64 [P, R]; padding rows are public and at position 0, so that they see something.
        k_scopes, k_positions: int64 [P, C]; columns not in use have a position that nobody sees.
        keys, values: one tensor per layer, [P, H_kv, capacity, D]; values in the order that the way to attend wants.
        groups: all P prompts in order. What follows a prefix stands behind it: at positions from its length on.
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
    q_positions: Tensor
    k_scopes: Tensor
    k_positions: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    groups: Sequence[PromptGroup]
    _biases: dict[tuple[int | None, int, torch.dtype], Tensor] = field(default_factory=dict, init=False)
    _tiles: dict[tuple[int | None, int, int], list[Tile]] = field(default_factory=dict, init=False)
    _kernel: list[NativeAttention | TritonAttention] = field(default_factory=list, init=False)

    def bias(self, window: int | None, group: int, dtype: torch.dtype) -> Tensor:
        """The additive mask [P, 1, R * G, C] over the own columns, for folded query rows; equal layers share it."""
        key = (window, group, dtype)
        if key not in self._biases:
            self._biases[key] = _additive(self._seen(slice(None), slice(None), window), group, dtype, _ALIGNMENT)
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

    @overload
    def kernel(self, way: Literal["native"]) -> NativeAttention: ...

    @overload
    def kernel(self, way: Literal["triton"]) -> TritonAttention: ...

    def kernel(self, way: Literal["native", "triton"]) -> NativeAttention | TritonAttention:
        """The cohort's attention by a kernel of ours; all layers have the same."""
        if not self._kernel:
            if way == "native":
                self._kernel.append(NativeAttention(self))
            else:
                from hpd_core.triton_attention import TritonAttention  # Triton is not everywhere

                self._kernel.append(TritonAttention(self))
        return self._kernel[0]

    def forget_masks(self) -> None:
        """When all layers have been given to the device: they are large, and the plan is kept until the step ends."""
        self._biases.clear()
        self._tiles.clear()

    def _cut(self, part: PromptGroup, num_heads: int) -> Iterator[tuple[slice, slice]]:
        """Several whole prompts of about as many tokens at a time, or rows of one where it is too large."""
        num_columns = self.k_positions.shape[1] + (part.prefix.num_tokens if part.prefix else 0)
        most = max(1, TILE_SCORES.get(self.q_positions.device.type, 2**26) // (num_heads * num_columns))
        share, few = _PADDING.get(self.q_positions.device.type, (math.inf, 0))
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
            q_positions = self.q_positions[prompts, rows, None]
            prefix_bias = _additive(visible(PUBLIC, q_positions, PUBLIC, positions, window), group, torch.float32)
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
            _additive(seen[..., :num_columns], group, torch.float32),
            part.prefix,
            prefix_bias,
        )

    def _seen(self, prompts: slice, rows: slice, window: int | None) -> Tensor:
        """Bool [n, rows, C]: which own columns the tokens see."""
        seen: Tensor = visible(
            self.q_scopes[prompts, rows, None],
            self.q_positions[prompts, rows, None],
            self.k_scopes[prompts, None, :],
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


def _additive(seen: Tensor, group: int, dtype: torch.dtype, alignment: int = 1) -> Tensor:
    """Bool [n, rows, C] -> the additive mask [n, 1, rows * G, C], whose rows begin at multiples of `alignment`."""
    num_columns = seen.shape[-1]
    padded = -(-num_columns // alignment) * alignment
    bias = torch.zeros(*seen.shape[:-1], padded, dtype=dtype, device=seen.device)
    # Finite, so that a stretch in which nothing is visible does not become NaN inside the kernel.
    bias[..., :num_columns].masked_fill_(~seen, torch.finfo(dtype).min / 2)
    return bias.repeat_interleave(group, dim=1)[:, None, :, :num_columns]


@dataclass(slots=True)
class PackedBatch:
    """What `packed_attention` needs to know about the packed row of one forward."""

    plans: Sequence[AttentionPlan]
    way: Way = "sdpa"
    num_calls: int = 0


def way_to_attend(asked: Literal["auto"] | Way, shape: CacheShape) -> Way:
    """What `engine.attention` means for this cache: with 'auto' the fastest way there is.

    Raises:
        ModelError: `native` or `triton` is asked for, and cannot be had.
    """
    if asked in ("sdpa", "eager"):
        return asked
    if asked == "triton":
        if (reason := _why_not_triton(shape)) is not None:
            raise ModelError(f"engine.attention is 'triton', but {reason}; 'auto' takes another way to attend")
        return "triton"
    reason = _why_not_native(shape)
    if reason is None:
        return "native"
    if asked == "native":
        raise ModelError(
            f"engine.attention is 'native', but {reason}; 'auto' takes another way to attend where it must"
        )
    if shape.device.type != "cpu":
        return "sdpa"
    logger.warning("decoding is slower than it could be: %s", reason)
    return "eager"


def cache_order(way: Way, shape: CacheShape) -> CacheOrder:
    """How this way to attend wants keys and values in memory."""
    if way == "native":
        return CacheOrder(library.columns_of_block(shape.dtype, shape.key_size, shape.value_size), fills=False)
    return CacheOrder(fills=way != "triton")


def _why_not_native(shape: CacheShape) -> str | None:
    if shape.device.type != "cpu":
        return f"the kernel in C++ runs on a CPU, not on {shape.device}"
    if shape.dtype not in library.DTYPES or shape.key_size % 2:
        size = f"{shape.dtype} and size {shape.key_size}"
        return f"the kernel in C++ takes heads of float32 or bfloat16 and of even size, not {size}"
    try:
        library.load()
    except library.NativeError as error:
        return f"the kernel in C++ cannot be had ({error}); install g++ 9 or newer, or name it by CXX"
    return None


def _why_not_triton(shape: CacheShape) -> str | None:
    if shape.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernel in Triton runs on a GPU, not on {shape.device}"
    try:
        from hpd_core.triton_attention import DTYPES
    except ImportError as error:
        return f"Triton is not here ({error}): PyTorch for CUDA brings it along"
    return None if shape.dtype in DTYPES else f"the kernel in Triton takes no {shape.dtype}"


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    hpd_batch: PackedBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer (transformers' AttentionInterface).

    Args:
        query: [1, H, T, D]; key, value: [1, H_kv, T, D] and [1, H_kv, T, D_v].
        hpd_batch: passed to the model's forward as a keyword.
        sliding_window, softcap, s_aux: what the model family needs (Mistral; Gemma 2; gpt-oss sinks).

    Returns:
        [1, T, H, D_v] and None for the attention weights.
    """
    layer: int = module.layer_idx  # type: ignore[assignment]
    hpd_batch.num_calls += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)  # [T, H, D]
    out = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
    way = hpd_batch.way
    if way == "sdpa" and (softcap is not None or s_aux is not None):
        way = "eager"
    for plan in hpd_batch.plans:
        span = slice(plan.start, plan.stop)
        if way in ("native", "triton"):
            plan.kernel(way).attend(
                layer,
                q[span],
                k[span],
                v[span],
                out[span],
                scale=scale,
                window=sliding_window,
                softcap=softcap,
                sinks=s_aux,
            )
            continue
        keys, values = plan.keys[layer], plan.values[layer]
        keys[plan.kv_prompts, :, plan.kv_columns] = k[span]
        values[plan.kv_prompts, :, plan.kv_columns] = v[span]
        num_prompts, num_columns = plan.k_positions.shape
        group = q.shape[1] // keys.shape[1]
        if way == "eager":
            for tile in plan.tiles(sliding_window, group, keys.shape[1]):
                attended = eager_attention(
                    tile.fold(q, keys.shape[1]),
                    keys[tile.prompts, :, tile.columns],
                    values[tile.prompts, :, tile.columns],
                    tile.bias,
                    scale,
                    softcap=softcap,
                    sinks=s_aux,
                    prefix=(tile.prefix.keys[layer], tile.prefix.values[layer]) if tile.prefix else None,
                    prefix_bias=tile.prefix_bias,
                )
                tile.unfold(attended, out)
        else:
            folded = fold(q[span].index_select(0, plan.rows), num_prompts, keys.shape[1])
            bias = plan.bias(sliding_window, group, q.dtype)
            attended = sdpa_attention(folded, keys[:, :, :num_columns], values[:, :, :num_columns], bias, scale)
            torch.index_select(unfold(attended, q.shape[1]), 0, plan.unrows, out=out[span])
    return out[None], None


def fold(rows: Tensor, num_prompts: int, num_kv_heads: int) -> Tensor:
    """[P * R, H, D] -> [P, H_kv, R * G, D]: rows of one prompt, and heads of one KV head, in one matrix."""
    num_rows = rows.shape[0] // num_prompts
    group = rows.shape[1] // num_kv_heads
    split = rows.view(num_prompts, num_rows, num_kv_heads, group, -1)
    return split.transpose(1, 2).reshape(num_prompts, num_kv_heads, num_rows * group, -1)


def unfold(folded: Tensor, num_heads: int) -> Tensor:
    """[P, H_kv, R * G, D_v] -> [P * R, H, D_v], the inverse of `fold`."""
    num_prompts, num_kv_heads, _, size = folded.shape
    group = num_heads // num_kv_heads
    split = folded.view(num_prompts, num_kv_heads, -1, group, size)
    return split.transpose(1, 2).reshape(-1, num_heads, size)


def fused_kernels(device: torch.device) -> AbstractContextManager[None]:
    """While it is entered, `sdpa_attention` has those of torch's kernels that suit packed rows; for a whole forward.

    Where torch prefers cuDNN's (Hopper), that one is planned on the host for every new shape, and here nearly every
    step has one of its own. Flash attention takes no mask, but on a CPU.
    """
    if device.type != "cuda":
        return nullcontext()
    allowed: AbstractContextManager[None] = sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return allowed


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, **_: Any) -> Tensor:
    """torch's fused attention. q: [P, H_kv, R * G, D]; k, v: [P, H_kv, C, D]; bias: [P, 1, R * G, C]."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def eager_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    scale: float,
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    prefix: tuple[Tensor, Tensor] | None = None,
    prefix_bias: Tensor | None = None,
) -> Tensor:
    """The same by matrix products, with logit softcap (Gemma 2), sinks (gpt-oss) and a prefix shared by all prompts.

    Args:
        q: [P, H_kv, M, D], M folded query rows; k, v: [P, H_kv, C, D]; bias: [P, 1, M, C].
        prefix: keys and values, [H_kv, L, D] each; prefix_bias: [P, 1, M, L] or None.

    Returns:
        [P, H_kv, M, D_v]
    """
    num_prompts, num_kv_heads, num_rows, _ = q.shape
    shared = prefix[0].shape[1] if prefix else 0
    flat = num_prompts * num_kv_heads
    scores = q.new_empty(num_prompts, num_kv_heads, num_rows, shared + k.shape[2], dtype=torch.float32)
    write_products(q.reshape(flat, num_rows, -1), k.reshape(flat, *k.shape[2:]), scores[..., shared:])
    if prefix:
        by_head = q.transpose(0, 1).reshape(num_kv_heads, num_prompts * num_rows, -1)
        write_products(by_head, prefix[0], scores[..., :shared].transpose(0, 1))
    scores.mul_(scale)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores[..., shared:].add_(bias)
    if prefix_bias is not None:
        scores[..., :shared].add_(prefix_bias)
    if sinks is not None:
        # gpt-oss: one learned logit per head takes part in the softmax and gives nothing.
        group = sinks.numel() // num_kv_heads
        sink = sinks.float().view(1, num_kv_heads, 1, group).expand(num_prompts, -1, num_rows // group, -1)
        scores = torch.cat([scores, sink.reshape(num_prompts, num_kv_heads, num_rows, 1)], dim=-1)
    weights = scores.softmax(dim=-1).to(v.dtype).flatten(0, 1)  # [P * H_kv, M, L + C (+ 1)]
    own, own_values = weights[..., shared : shared + k.shape[2]], v.reshape(flat, *v.shape[2:])
    if not prefix:
        return torch.bmm(own, own_values).view(*q.shape[:3], -1)
    by_head = weights[..., :shared].view(*q.shape[:3], shared).transpose(0, 1).reshape(num_kv_heads, -1, shared)
    attended = torch.bmm(by_head, prefix[1]).view(num_kv_heads, num_prompts, num_rows, -1).transpose(0, 1)
    return torch.baddbmm(attended.reshape(flat, num_rows, -1), own, own_values).view(*q.shape[:3], -1)


def write_products(q: Tensor, k: Tensor, out: Tensor) -> None:
    """Scores, unscaled: q [B, M, D] times k [B, N, D], into `out`, fp32 of B * M * N elements."""
    # A transposed slice of a larger block would be copied element by element, three times slower than the product.
    out.copy_(torch.bmm(q, k.contiguous().transpose(1, 2)).view(out.shape))
