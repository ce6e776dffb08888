"""Attention over packed rows by a kernel of our own on a GPU, in Triton: what native/attention.cpp is on a CPU.

Of a cohort every program takes some query rows of one prompt and one KV head: rows are the prompt's tokens, each with
all query heads that share the KV head. It reads the shared prefix, then the prompt's own columns, block by block, and
decides by positions and scopes who sees whom, where torch's fused kernel reads a mask that somebody has to write,
takes as many rows of every prompt as the longest has, and a copy of the prefix for each. (Every program reads the
prefix anew, but it is the same memory for all prompts, and may be found in the GPU's cache.)

    o = softmax(q k' * scale) v     with a running maximum and a running sum (Milakov and Gimelshein, arXiv:1805.02867),
                                    so that no scores are kept (FlashAttention, arXiv:2205.14135)

Products of fp32 are computed as fp32, not as TF32. With TRITON_INTERPRET=1 in the environment before this is imported,
Triton runs the kernel on a CPU, which is how the tests run it where there is no GPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hpd_core.attention.native import check_sizes
from hpd_core.system.device import to_device

if TYPE_CHECKING:
    from hpd_core.attention.plan import AttentionPlan

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LAUNCH = {"num_warps": 4, "num_stages": 2}
_PUBLIC = tl.constexpr(-1)  # layout.PUBLIC: a kernel reads no Python numbers but these
_LITTLE = tl.constexpr(-1.0e30)

# Numbers that change from step to step. Left alone, Triton compiles anew for one that is 1 or a multiple of 16.
_CHANGING = ("first_prompt", "num_prompts", "capacity", "prefix_length", "window", "q_row", "k_row")


@triton.jit
def _fold_in(q, k, v, seen, best, total, sums, scale, softcap, HAS_SOFTCAP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Takes a block of columns k [C, D], v [C, D_v] into the rows' running maximum [R], sum [R] and values [R, D_v]."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if HAS_SOFTCAP:
        small = tl.exp(-2 * tl.abs(scores) / softcap)  # tanh, without an overflow
        scores = tl.where(scores < 0, -softcap, softcap) * (1 - small) / (1 + small)
    scores = tl.where(seen, scores, float("-inf"))
    now = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp(scores - now[:, None])
    shrink = tl.exp(best - now)
    total = total * shrink + tl.sum(weights, 1)
    sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return now, total, sums


@triton.jit(do_not_specialize=_CHANGING)
def kernel(  # type: ignore[no-untyped-def]
    q,
    out,
    keys,
    values,
    prefix_keys,
    prefix_values,
    sinks,
    bounds,
    q_scopes,
    q_positions,
    k_scopes,
    k_positions,
    first_prompt,
    num_prompts,
    capacity,
    prefix_length,
    q_row,
    k_row,
    q_token,
    q_head,
    scale,
    softcap,
    window,
    GROUP: tl.constexpr,
    KEY_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_PREFIX: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Program (block of rows, KV head, prompt of the group).

    Arguments: q [t, H, D] with strides q_token and q_head, and without gaps out [t, H, D_v], keys [P, H_kv, capacity,
    D], values likewise, prefix_keys [H_kv, L, D], prefix_values likewise, sinks [H]; bounds [3, P], per prompt its
    first token, its tokens, its columns in use; scopes and positions with rows q_row and k_row apart.
    """
    kv_head = tl.program_id(1).to(tl.int64)
    prompt = first_prompt + tl.program_id(2).to(tl.int64)
    first = tl.load(bounds + prompt)
    count = tl.load(bounds + num_prompts + prompt)
    used = tl.load(bounds + 2 * num_prompts + prompt)
    start = tl.program_id(0) * ROWS
    if start >= count * GROUP:
        return

    row = start + tl.arange(0, ROWS)
    is_row = row < count * GROUP
    token = row // GROUP
    head = kv_head * GROUP + row % GROUP
    by_key, by_value = tl.arange(0, KEY_BLOCK), tl.arange(0, VALUE_BLOCK)
    is_key, is_value = by_key < KEY_SIZE, by_value < VALUE_SIZE
    q_at = (first + token) * q_token + head * q_head
    query = tl.load(q + q_at[:, None] + by_key[None, :], mask=is_row[:, None] & is_key[None, :], other=0.0)
    q_place = prompt * q_row + token
    scope = tl.load(q_scopes + q_place, mask=is_row, other=_PUBLIC)
    position = tl.load(q_positions + q_place, mask=is_row, other=0)

    best = tl.full([ROWS], _LITTLE, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, VALUE_BLOCK], tl.float32)
    if HAS_SINKS:  # one more logit a head, which gives nothing
        best = tl.load(sinks + head, mask=is_row, other=0.0).to(tl.float32)
        total += 1.0

    if HAS_PREFIX:  # public, at the positions 0 to L - 1, before everything here
        begin_at = 0
        if HAS_WINDOW:  # what all rows have behind their windows is not read
            nearest = tl.min(tl.where(is_row, position, prefix_length + window))
            begin_at = tl.maximum(0, nearest - window + 1) // COLUMNS * COLUMNS
        for begin in range(begin_at, prefix_length, COLUMNS):
            column = begin + tl.arange(0, COLUMNS)
            is_column = column < prefix_length
            # Products with constants last, so that Triton knows how addresses are aligned.
            place = kv_head * prefix_length + column
            k_place, v_place = place * KEY_SIZE, place * VALUE_SIZE
            k = tl.load(prefix_keys + k_place[:, None] + by_key[None, :], is_column[:, None] & is_key[None, :], 0.0)
            v = tl.load(
                prefix_values + v_place[:, None] + by_value[None, :], is_column[:, None] & is_value[None, :], 0.0
            )
            seen = is_row[:, None] & is_column[None, :]
            if HAS_WINDOW:
                seen = seen & (position[:, None] - column[None, :] < window)
            best, total, sums = _fold_in(query, k, v, seen, best, total, sums, scale, softcap, HAS_SOFTCAP)

    for begin in range(0, used, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        is_column = column < used
        place = (prompt * tl.num_programs(1) + kv_head) * capacity + column
        k_place, v_place = place * KEY_SIZE, place * VALUE_SIZE
        k = tl.load(keys + k_place[:, None] + by_key[None, :], is_column[:, None] & is_key[None, :], 0.0)
        v = tl.load(values + v_place[:, None] + by_value[None, :], is_column[:, None] & is_value[None, :], 0.0)
        k_scope = tl.load(k_scopes + prompt * k_row + column, is_column, _PUBLIC)
        k_position = tl.load(k_positions + prompt * k_row + column, is_column, 0)
        is_public = k_scope == _PUBLIC
        seen = is_public[None, :] | (k_scope[None, :] == scope[:, None])
        seen = seen & (k_position[None, :] <= position[:, None])
        if HAS_WINDOW:
            seen = seen & (position[:, None] - k_position[None, :] < window)
        seen = seen & is_row[:, None] & is_column[None, :]
        best, total, sums = _fold_in(query, k, v, seen, best, total, sums, scale, softcap, HAS_SOFTCAP)

    # Every token sees itself; the rows behind the last have seen nothing.
    answers = sums / tl.where(is_row, total, 1.0)[:, None]
    o_place = ((first + token) * (GROUP * tl.num_programs(1)) + head) * VALUE_SIZE
    tl.store(
        out + o_place[:, None] + by_value[None, :],
        answers.to(out.dtype.element_ty),
        is_row[:, None] & is_value[None, :],
    )


def block_sizes(num_rows: int, key_size: int, value_size: int, dtype: torch.dtype) -> dict[str, int]:
    """ROWS, COLUMNS, KEY_BLOCK and VALUE_BLOCK for prompts of at most so many query rows a KV head.

    Triton's products want 16 rows and columns at least, and sizes that are powers of two. What a program holds stays
    within the 99 KiB of shared memory that an L40S has for it (tests/core/attention/test_triton.py compiles it and
    looks).
    """
    key_block, value_block = (max(16, triton.next_power_of_2(size)) for size in (key_size, value_size))
    num_bytes = max(key_block, value_block) * dtype.itemsize
    most = 64 if num_bytes <= 256 else 32 if num_bytes <= 512 else 16
    return {
        "ROWS": min(most, max(16, triton.next_power_of_2(num_rows))),
        "COLUMNS": most,
        "KEY_BLOCK": key_block,
        "VALUE_BLOCK": value_block,
    }


def _rows_differ(plan: AttentionPlan) -> bool:
    """Whether scopes and positions have rows of other lengths, where the kernel reads both by one."""
    pairs = ((plan.q_scopes, plan.q_positions), (plan.k_scopes, plan.k_positions))
    return any(
        (one.shape[0] > 1 and one.stride(0) != other.stride(0))
        or (one.shape[1] > 1 and (one.stride(1), other.stride(1)) != (1, 1))
        for one, other in pairs
    )


class TritonAttention:
    """Attention of one cohort's tokens of one step, layer by layer."""

    def __init__(self, plan: AttentionPlan) -> None:
        self._groups = [part for part in plan.groups if plan.counts[part.start : part.stop].any()]
        self._counts = plan.counts
        # What the kernel reads; not the plan, which holds this object.
        self._keys, self._values = plan.keys, plan.values
        self._places = (plan.kv_prompts, plan.kv_columns)
        self._seen_by = (plan.q_scopes, plan.q_positions, plan.k_scopes, plan.k_positions)
        if _rows_differ(plan):
            raise ValueError("scopes and positions are stored in two ways")
        bounds = np.stack([np.cumsum(plan.counts) - plan.counts, plan.counts, plan.used])
        self._bounds = to_device(np.ascontiguousarray(bounds, dtype=np.int64), plan.q_scopes.device)

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> None:
        """Stores the keys and values of the new tokens, and attends for them.

        Arguments and errors as `NativeAttention.attend`, but for fp16, which is taken, too.
        """
        keys, values = self._keys[layer], self._values[layer]
        check_sizes(q, k, v, out, keys, values, DTYPES)
        prompts, columns = self._places
        keys[prompts, :, columns] = k
        values[prompts, :, columns] = v
        q = q if q.stride(2) == 1 else q.contiguous()
        sinks = None if sinks is None else sinks.contiguous()
        q_scopes, q_positions, k_scopes, k_positions = self._seen_by
        group = q.shape[1] // keys.shape[1]
        # Triton launches on torch's current device, whichever the tensors are on.
        with torch.cuda.device(q.device) if q.is_cuda else nullcontext():
            for part in self._groups:
                prefix = part.prefix
                before = (keys, values) if prefix is None else (prefix.keys[layer], prefix.values[layer])
                if not all(x.is_contiguous() for x in (out, keys, values, *before)):
                    raise ValueError("what the kernel takes to have no gaps has some")
                num_rows = int(self._counts[part.start : part.stop].max()) * group
                sizes = block_sizes(num_rows, keys.shape[3], values.shape[3], keys.dtype)
                kernel[(triton.cdiv(num_rows, sizes["ROWS"]), keys.shape[1], part.stop - part.start)](
                    q,
                    out,
                    keys,
                    values,
                    *before,
                    keys if sinks is None else sinks,
                    self._bounds,
                    q_scopes,
                    q_positions,
                    k_scopes,
                    k_positions,
                    part.start,
                    self._bounds.shape[1],
                    keys.shape[2],
                    0 if prefix is None else prefix.num_tokens,
                    q_scopes.stride(0),
                    k_scopes.stride(0),
                    q.stride(0),
                    q.stride(1),
                    scale,
                    softcap or 0.0,
                    window or 0,
                    GROUP=group,
                    KEY_SIZE=keys.shape[3],
                    VALUE_SIZE=values.shape[3],
                    HAS_PREFIX=prefix is not None,
                    HAS_WINDOW=window is not None,
                    HAS_SOFTCAP=softcap is not None,
                    HAS_SINKS=sinks is not None,
                    **sizes,
                    **LAUNCH,
                )
