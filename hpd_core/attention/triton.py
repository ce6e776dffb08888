"""Attention over packed rows by our own Triton kernel on a GPU; native/attention.cpp is the same for a CPU.

One launch per layer attends for all tokens of a step, whatever the number of cohorts, prefixes and prompts. A program
takes one tile (attention/step_tables.py: neighbouring tokens of one prompt, with all query heads that share a KV head)
and one KV head. It reads the prefix and those own columns that all of the tile's tokens see without a mask. After them
it decides by positions and scopes which columns a token sees; columns that no token of the tile sees are not read.

    o = softmax(q k' * scale) v     with a running maximum and a running sum (Milakov and Gimelshein, arXiv:1805.02867),
                                    so that no scores are kept (FlashAttention, arXiv:2205.14135), by powers of two

Products of fp32 are computed as fp32, not as TF32. With TRITON_INTERPRET=1 in the environment before this is imported,
Triton runs the kernel on a CPU; the tests run it so without a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from hpd_core.attention.step_tables import PROMPT_FIELDS, TILE_FIELDS, Cut

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_PUBLIC = tl.constexpr(-1)  # layout.PUBLIC: a kernel reads no Python numbers but these
_LITTLE = tl.constexpr(-1.0e30)
_LATE = tl.constexpr(2**30)
_LOG2_E = tl.constexpr(math.log2(math.e))
_TILE = tl.constexpr(len(TILE_FIELDS))
_PROMPT = tl.constexpr(len(PROMPT_FIELDS))

# Numbers that change from step to step or from layer to layer. Without this, Triton compiles anew for one that is 1 or
# a multiple of 16.
_CHANGING = ("layer", "window")
# The tables of a step are consecutive: where one begins is a multiple of 16 bytes in some steps only.
_TABLES = ("tiles", "prompts", "scopes", "positions")


@triton.jit
def _load(start, column, limit, by, SIZE: tl.constexpr, BLOCK: tl.constexpr, IS_CUT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load columns of a head's keys or values, [C, BLOCK]; with `IS_CUT`, 0 from `limit` on."""
    # The product with the constant last, so that Triton knows how addresses are aligned.
    at = start + (column * SIZE)[:, None] + by[None, :]
    if IS_CUT:
        return tl.load(at, (column < limit)[:, None] & (by < SIZE)[None, :], 0.0)
    if SIZE == BLOCK:
        return tl.load(at)
    return tl.load(at, (by < SIZE)[None, :], 0.0)


@triton.jit
def _scores(q, k, scale, softcap, HAS_SOFTCAP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return scores [R, C], times log2(e), which `scale` already includes if there is no softcap."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if HAS_SOFTCAP:
        small = tl.exp(-2 * tl.abs(scores) / softcap)  # tanh, without an overflow
        scores = tl.where(scores < 0, -softcap, softcap) * (1 - small) / (1 + small) * _LOG2_E
    return scores


@triton.jit
def _fold_in(scores, v, best, total, sums):  # type: ignore[no-untyped-def]
    """Add scores [R, C] of values v [C, D_v] to the rows' running maximum [R], sum [R] and values [R, D_v]."""
    now = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp2(scores - now[:, None])
    shrink = tl.exp2(best - now)
    total = total * shrink + tl.sum(weights, 1)
    sums = tl.dot(weights.to(v.dtype), v, sums * shrink[:, None], input_precision="ieee")
    return now, total, sums


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    q,
    out,
    origin,
    seen_origin,
    sinks,
    tile,
    prompts,
    scopes,
    positions,
    layer,
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
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Attend for one tile and KV head, by `ROWS` query rows."""
    kv_head = tl.program_id(1).to(tl.int64)
    first, count = tl.load(tile + 1), tl.load(tile + 2)
    num_open, first_seen, end = (
        tl.load(tile + 3).to(tl.int32),
        tl.load(tile + 4).to(tl.int32),
        tl.load(tile + 5).to(tl.int32),
    )
    prompt = prompts + tl.load(tile) * _PROMPT
    key_at = tl.load(prompt) + layer * tl.load(prompt + 1) + kv_head * tl.load(prompt + 2)
    value_at = tl.load(prompt + 3) + layer * tl.load(prompt + 4) + kv_head * tl.load(prompt + 5)
    keys, values = origin + tl.multiple_of(key_at, ALIGNED), origin + tl.multiple_of(value_at, ALIGNED)
    k_scopes, k_positions = seen_origin + tl.load(prompt + 6), seen_origin + tl.load(prompt + 7)
    prefix_length = tl.load(prompt + 8).to(tl.int32)
    key_at = tl.load(prompt + 9) + layer * tl.load(prompt + 10) + kv_head * tl.load(prompt + 11)
    value_at = tl.load(prompt + 12) + layer * tl.load(prompt + 13) + kv_head * tl.load(prompt + 14)
    prefix_keys = origin + tl.multiple_of(key_at, ALIGNED)
    prefix_values = origin + tl.multiple_of(value_at, ALIGNED)

    # Long-lived registers are of 32 bits.
    row = tl.arange(0, ROWS)
    is_row = row < count.to(tl.int32) * GROUP
    token = row // GROUP
    head = (row % GROUP).to(tl.int32)
    by_key, by_value, by_column = tl.arange(0, KEY_BLOCK), tl.arange(0, VALUE_BLOCK), tl.arange(0, COLUMNS)
    query_at = q + first * q_token + kv_head * (GROUP * q_head)
    q_at = token * q_token + head * q_head
    query = tl.load(query_at + q_at[:, None] + by_key[None, :], is_row[:, None] & (by_key < KEY_SIZE)[None, :], 0.0)
    scope = tl.load(scopes + first + token, is_row, _PUBLIC).to(tl.int32)
    position = tl.load(positions + first + token, is_row, 0).to(tl.int32)

    best = tl.full([ROWS], _LITTLE, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, VALUE_BLOCK], tl.float32)
    if HAS_SINKS:  # one more logit per head, without a value
        best = tl.load(sinks + kv_head * GROUP + head, is_row, 0.0).to(tl.float32) * _LOG2_E
        total += 1.0

    # The prefix: public, at the positions 0 to L - 1, before everything here.
    whole = prefix_length // COLUMNS * COLUMNS
    begin_at = 0
    if HAS_WINDOW:  # columns before all rows' windows are not read
        # With a negative window, the row sees its chunk of -window positions.
        lowest = tl.where(window > 0, position - window + 1, position // -window * -window)
        begin_at = tl.maximum(0, tl.min(tl.where(is_row, lowest, prefix_length))) // COLUMNS * COLUMNS
        whole = 0
    for begin in range(0, whole, COLUMNS):
        column = begin + by_column
        k = _load(prefix_keys, column, 0, by_key, KEY_SIZE, KEY_BLOCK, False)
        scores = _scores(query, k, scale, softcap, HAS_SOFTCAP)
        v = _load(prefix_values, column, 0, by_value, VALUE_SIZE, VALUE_BLOCK, False)
        best, total, sums = _fold_in(scores, v, best, total, sums)
    for begin in range(tl.maximum(whole, begin_at), prefix_length, COLUMNS):
        column = begin + by_column
        k = _load(prefix_keys, column, prefix_length, by_key, KEY_SIZE, KEY_BLOCK, True)
        seen = is_row[:, None] & (column < prefix_length)[None, :]
        if HAS_WINDOW:
            seen = seen & (column[None, :] >= lowest[:, None])
        scores = tl.where(seen, _scores(query, k, scale, softcap, HAS_SOFTCAP), float("-inf"))
        v = _load(prefix_values, column, prefix_length, by_value, VALUE_SIZE, VALUE_BLOCK, True)
        best, total, sums = _fold_in(scores, v, best, total, sums)

    # Own columns that all rows see; then, with masks, the rest of these, and the stretch where only some are seen.
    whole = num_open // COLUMNS * COLUMNS
    if HAS_WINDOW:
        whole, num_open, first_seen = 0, 0, 0
    for begin in range(0, whole, COLUMNS):
        column = begin + by_column
        k = _load(keys, column, 0, by_key, KEY_SIZE, KEY_BLOCK, False)
        scores = _scores(query, k, scale, softcap, HAS_SOFTCAP)
        v = _load(values, column, 0, by_value, VALUE_SIZE, VALUE_BLOCK, False)
        best, total, sums = _fold_in(scores, v, best, total, sums)
    is_apart = first_seen > num_open
    num_before = tl.where(is_apart & (num_open > whole), 1, 0)
    later = tl.where(is_apart, first_seen, whole)
    for number in range(0, num_before + tl.cdiv(end - later, COLUMNS)):
        is_before = number < num_before
        column = tl.where(is_before, whole, later + (number - num_before) * COLUMNS) + by_column
        limit = tl.where(is_before, num_open, end)
        k = _load(keys, column, limit, by_key, KEY_SIZE, KEY_BLOCK, True)
        k_both = tl.load(k_scopes + column, column < limit, 0)
        k_scope, k_last = k_both.to(tl.int32), (k_both >> 32).to(tl.int32)
        k_position = tl.minimum(tl.load(k_positions + column, column < limit, 0), _LATE).to(tl.int32)
        k_position = tl.where(column < num_open, 0, k_position)  # also where a document is read both ways
        seen = (k_scope[None, :] <= scope[:, None]) & (scope[:, None] <= k_last[None, :])
        seen = seen & (k_position[None, :] <= position[:, None])
        if HAS_WINDOW:
            seen = seen & (k_position[None, :] >= lowest[:, None])
        seen = seen & is_row[:, None] & (column < limit)[None, :]
        scores = tl.where(seen, _scores(query, k, scale, softcap, HAS_SOFTCAP), float("-inf"))
        v = _load(values, column, limit, by_value, VALUE_SIZE, VALUE_BLOCK, True)
        best, total, sums = _fold_in(scores, v, best, total, sums)

    # Every token sees itself; rows after the last one have seen nothing, or columns that are not theirs.
    answers = sums / tl.where(is_row, total, 1.0)[:, None]
    num_heads = GROUP * tl.num_programs(1)
    out_at = out + (first * num_heads + kv_head * GROUP) * VALUE_SIZE
    o_at = (token * num_heads + head) * VALUE_SIZE
    is_kept = is_row[:, None] & (by_value < VALUE_SIZE)[None, :]
    tl.store(out_at + o_at[:, None] + by_value[None, :], answers.to(out.dtype.element_ty), is_kept)


@triton.jit(do_not_specialize=_CHANGING, do_not_specialize_on_alignment=_TABLES)
def attend_kernel(  # type: ignore[no-untyped-def]
    q,
    out,
    origin,
    seen_origin,
    sinks,
    tiles,
    prompts,
    scopes,
    positions,
    layer,
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
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    FEW_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Run program (tile, KV head).

    Arguments: q [T, H, D] with strides q_token and q_head, and without gaps out [T, H, D_v] and sinks [H]; tiles,
    prompts, and of the tokens scopes and positions, as step_tables.py has them; keys and values from `origin`, scopes
    and positions of columns from `seen_origin`.
    """
    if not HAS_SOFTCAP:
        scale = scale * _LOG2_E
    tile = tiles + tl.program_id(0) * _TILE
    count = tl.load(tile + 2)
    if (count > 0) & (count * GROUP <= FEW_ROWS):
        _attend(
            q, out, origin, seen_origin, sinks, tile, prompts, scopes, positions, layer, q_token, q_head, scale,
            softcap, window, GROUP, KEY_SIZE, VALUE_SIZE, KEY_BLOCK, VALUE_BLOCK, ALIGNED, FEW_ROWS, COLUMNS,
            HAS_WINDOW, HAS_SOFTCAP, HAS_SINKS,
        )  # fmt: skip
    if ROWS > FEW_ROWS:  # noqa: SIM102  else there are no others, and they are not compiled
        if count * GROUP > FEW_ROWS:
            _attend(
                q, out, origin, seen_origin, sinks, tile, prompts, scopes, positions, layer, q_token, q_head, scale,
                softcap, window, GROUP, KEY_SIZE, VALUE_SIZE, KEY_BLOCK, VALUE_BLOCK, ALIGNED, ROWS, COLUMNS,
                HAS_WINDOW, HAS_SOFTCAP, HAS_SINKS,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block sizes of a kernel, for one kind of GPU.

    Attributes:
        rows, few_rows: query rows of a large and of a small tile.
        columns: number of cache columns at a time.
        num_warps, num_stages: Triton's options.
        max_registers: per thread; with fewer, more programs share a multiprocessor. None: chosen by the compiler.
    """

    rows: int
    few_rows: int
    columns: int
    num_warps: int
    num_stages: int
    max_registers: int | None = None


# By compute capability (the highest one not above the GPU's counts), for heads of up to 256 bytes. An L40S (8.9) and an
# RTX PRO 6000 (12.0) have less shared memory, 99 KiB per program, than an A100 (8.0: 163), an H100 (9.0) or a B200
# (10.0: 227). Measured on 9.0 alone; for 10.0 and 12.0 it is only known that they compile and fit.
_BLOCKS = {
    (8, 0): Blocks(64, 32, 64, 4, 2),
    (8, 6): Blocks(64, 32, 32, 4, 2),
    # Three programs share a multiprocessor, not two, as they would with the 188 registers that the compiler prefers.
    (9, 0): Blocks(64, 64, 32, 4, 3, max_registers=168),
    (12, 0): Blocks(64, 32, 32, 4, 2),
}

# For small steps, in which most prompts have few tokens: small programs, many of which run at a time, since each waits
# for its keys and values. Measured on 9.0 alone.
_BLOCKS_OF_SMALL_STEPS = Blocks(16, 16, 32, 1, 3)


def blocks_for(
    capability: tuple[int, int], key_size: int, value_size: int, dtype: torch.dtype, *, small_steps: bool = False
) -> Blocks:
    """Return the block sizes of attention on a GPU of this compute capability."""
    known = [blocks for least, blocks in _BLOCKS.items() if least <= capability]
    blocks = _BLOCKS_OF_SMALL_STEPS if small_steps else known[-1] if known else _BLOCKS[8, 6]
    num_bytes = max(triton.next_power_of_2(key_size), triton.next_power_of_2(value_size)) * dtype.itemsize
    if num_bytes <= 256:
        # Products of fp32 do not use tensor cores, and need many registers.
        return replace(blocks, num_warps=4, max_registers=None) if dtype == torch.float32 else blocks
    most = 32 if num_bytes <= 512 else 16
    return Blocks(16 if small_steps else most, 16, most, 4, 2)


def cut_of(blocks: Blocks, group: int) -> Cut:
    """Return the sizes of tiles for these blocks; `group`: number of heads that share a KV head."""
    return Cut(max(blocks.rows, triton.next_power_of_2(group)), blocks.few_rows, group)
