"""Attention of one step by the kernels in Triton: its tables on the device, and the launches that read them.

Storing keys and values on a GPU, in Triton: one launch per layer for all tokens of a step.

`rotate_and_store` reads queries, keys and values as the fused projection leaves them. `store` is for callers that have
rotated them already. `note` stores who may see the new columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpd_core.attention.kv_cache import CacheShape
from hpd_core.attention.plan import AddressedPlan
from hpd_core.attention.step_tables import PROMPT_FIELDS, Sizes, StepTables, step_tables, views
from hpd_core.attention.triton import Blocks, attend_kernel, blocks_for, cut_of
from hpd_core.layout import IntArray
from hpd_core.native.linear import Norm
from hpd_core.system.device import to_device


@dataclass(frozen=True, slots=True, eq=False)
class TritonStep:
    """Data that all layers of one step read.

    Attributes:
        tiles, prompts, tokens, logit_rows, hidden: the tables of step_tables.py, on the device.
        last_position: the highest of all tokens, on the host.
        origin, seen_origin: tensors that their addresses are counted from.
    """

    tiles: Tensor
    prompts: Tensor
    tokens: Tensor
    logit_rows: Tensor
    hidden: Tensor
    last_position: int
    origin: Tensor
    seen_origin: Tensor
    num_kv_heads: int
    blocks: Blocks

    @property
    def token_ids(self) -> Tensor:
        """Token ids, int64 [T]."""
        return self.tokens[0]

    @property
    def positions(self) -> Tensor:
        """Positions, int64 [T]."""
        return self.tokens[1]

    def note(self) -> None:
        """Store who may see the new columns; call it once, before the first layer."""
        num_tokens, num_hidden = self.tokens.shape[1], len(self.hidden)
        _note_kernel[(triton.cdiv(max(num_tokens, num_hidden), 256),)](
            self.seen_origin,
            self.prompts,
            self.tokens,
            self.hidden,
            num_tokens,
            num_hidden,
            self.tokens.stride(0),
            TOKENS=256,
        )

    def store(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Store keys [T, H_kv, D] and values [T, H_kv, D_v] of a layer. Of `q` only the shape is read."""
        k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (k, v))
        self._store(layer, q, k, v, None, None, None)

    def rotate_and_store(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, norms: tuple[Norm, Norm] | None
    ) -> None:
        """Norm and rotate queries, in place, and keys; store keys and values.

        Args:
            q: [T, H, D], heads without gaps, D even; k, v: [T, H_kv, D] and [T, H_kv, D_v].
            cos, sin: [T, D], without gaps.
            norms: norms of each head of the queries and of the keys.
        """
        self._store(layer, q, k, v, cos, sin, norms)

    def _store(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        norms: tuple[Norm, Norm] | None,
    ) -> None:
        num_tokens, num_kv_heads, key_size = k.shape
        value_size, origin = v.shape[2], self.origin
        of_queries, of_keys = norms or (Norm(origin, 0.0), Norm(origin, 0.0))
        sizes: dict[str, Any] = {
            "GROUP": q.shape[1] // num_kv_heads,
            "KEY_SIZE": key_size,
            "VALUE_SIZE": value_size,
            "HALF_BLOCK": triton.next_power_of_2(max(1, key_size // 2)),
            "KEY_BLOCK": triton.next_power_of_2(key_size),
            "VALUE_BLOCK": triton.next_power_of_2(value_size),
            "ALIGNED": math.gcd(key_size, value_size, 16),
            "TOKENS": _TOKENS,
            "ROTATES": cos is not None,
            "HAS_NORMS": norms is not None,
        }
        _store_kernel[(triton.cdiv(num_tokens, _TOKENS), num_kv_heads)](
            q,
            k,
            v,
            origin if cos is None else cos,
            origin if sin is None else sin,
            of_queries.weight,
            of_keys.weight,
            origin,
            self.prompts,
            self.tokens[3],
            self.tokens[4],
            layer,
            num_tokens,
            q.stride(0),
            k.stride(0),
            k.stride(1),
            v.stride(0),
            v.stride(1),
            of_queries.eps,
            of_keys.eps,
            of_keys.offset,
            **sizes,
        )

    def attend(
        self,
        layer: int,
        q: Tensor,
        out: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> None:
        """Attend for all tokens of the step, in a layer whose keys and values are stored.

        Args:
            q: [T, H, D]; out: [T, H, D_v], contiguous; it is written.
            window, softcap, sinks: as in `packed_attention`.
        """
        q = q if q.stride(2) == 1 else q.contiguous()
        if window is not None and abs(window) > self.last_position:
            window = None  # it covers everything
        key_size, value_size, blocks = q.shape[2], out.shape[2], self.blocks
        group = q.shape[1] // self.num_kv_heads
        sizes: dict[str, Any] = {
            "GROUP": group,
            "KEY_SIZE": key_size,
            "VALUE_SIZE": value_size,
            "KEY_BLOCK": max(16, triton.next_power_of_2(key_size)),
            "VALUE_BLOCK": max(16, triton.next_power_of_2(value_size)),
            "ALIGNED": math.gcd(key_size, value_size, 16),
            "ROWS": cut_of(blocks, group).rows,
            "FEW_ROWS": blocks.few_rows,
            "COLUMNS": blocks.columns,
            "HAS_WINDOW": window is not None,
            "HAS_SOFTCAP": softcap is not None,
            "HAS_SINKS": sinks is not None,
        }
        attend_kernel[(self.tiles.shape[0], self.num_kv_heads)](
            q,
            out,
            self.origin,
            self.seen_origin,
            self.origin if sinks is None else sinks,
            self.tiles,
            self.prompts,
            self.tokens[2],
            self.tokens[1],
            layer,
            q.stride(0),
            q.stride(1),
            scale,
            softcap or 0.0,
            window or 0,
            **sizes,
            num_warps=blocks.num_warps,
            num_stages=blocks.num_stages,
            **({} if blocks.max_registers is None else {"maxnreg": blocks.max_registers}),
        )


class TritonAttention:
    """Factory of the steps of one decoder."""

    def __init__(
        self, shape: CacheShape, group: int, *, small_steps: bool = False, blocks: Blocks | None = None
    ) -> None:
        """Prepare for steps of one decoder.

        Args:
            group: number of query heads that share a KV head.
            small_steps: whether steps have few tokens of each prompt.
            blocks: block sizes; None: those that suit the GPU.
        """
        self._shape = shape
        is_gpu = shape.device.type == "cuda"
        capability = torch.cuda.get_device_capability(shape.device) if is_gpu else (9, 0)
        self._blocks = blocks or blocks_for(
            capability, shape.layer.key_size, shape.layer.value_size, shape.dtype, small_steps=small_steps
        )
        self._cut = cut_of(self._blocks, group)
        self._origin = empty_origin(shape.dtype, shape.device)
        self._seen_origin = empty_origin(torch.int64, shape.device)

    def tables(
        self,
        plans: Sequence[AddressedPlan],
        token_ids: IntArray,
        logit_rows: IntArray,
        room: Sizes | None = None,
    ) -> StepTables:
        """Build a step's tables. Arguments as in `step_tables`."""
        origins = self._origin.data_ptr(), self._seen_origin.data_ptr()
        return step_tables(plans, token_ids, logit_rows, self._cut, self._shape, *origins, room)

    def step(self, tables: StepTables) -> TritonStep:
        """Copy the tables to the device and return the step."""
        return self.at(to_device(tables.numbers, self._shape.device), tables.sizes, tables.last_position)

    def at(self, numbers: Tensor, sizes: Sizes, last_position: int) -> TritonStep:
        """Return a step whose tables are, or will be, `numbers` on the device."""
        parts = views(numbers, sizes)
        return TritonStep(
            parts.tiles,
            parts.prompts,
            parts.tokens,
            parts.rows,
            parts.hidden,
            last_position,
            self._origin,
            self._seen_origin,
            self._shape.layer.num_kv_heads,
            self._blocks,
        )


_PROMPT = tl.constexpr(len(PROMPT_FIELDS))
_NOWHERE = tl.constexpr(-(2**63))
_UNSEEN = tl.constexpr(2**62)  # cohort_cache.UNSEEN
_CHANGING = ("layer", "num_tokens", "num_hidden", "row")
_TABLES = ("prompts", "tokens", "prompt_of", "column_of", "hidden")  # where they begin changes, too (triton.py)
_TOKENS = 16
"""Number of tokens per program."""


@triton.jit
def _normed(first, second, weight, eps, offset, by, is_number, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return both halves of heads [T, HALF], after their RMS norm."""
    squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
    factor = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
    first_weight = tl.load(weight + by, is_number, 0.0).to(tl.float32)
    second_weight = tl.load(weight + HALF + by, is_number, 0.0).to(tl.float32)
    return first * factor * (first_weight + offset)[None, :], second * factor * (second_weight + offset)[None, :]


@triton.jit(do_not_specialize=_CHANGING, do_not_specialize_on_alignment=_TABLES)
def _store_kernel(  # type: ignore[no-untyped-def]
    q,
    k,
    v,
    cos,
    sin,
    q_weight,
    k_weight,
    origin,
    prompts,
    prompt_of,
    column_of,
    layer,
    num_tokens,
    q_token,
    k_token,
    k_head,
    v_token,
    v_head,
    q_eps,
    k_eps,
    offset,
    GROUP: tl.constexpr,
    KEY_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
    TOKENS: tl.constexpr,
    ROTATES: tl.constexpr,
    HAS_NORMS: tl.constexpr,
):
    """Run program (block of tokens, KV head).

    Arguments: q [T, H, D] with stride q_token and heads without gaps; k [T, H_kv, D] and v [T, H_kv, D_v] with theirs;
    cos, sin [T, D] without gaps; prompts, and of the tokens prompt and column, as step_tables.py has them.
    """
    kv_head = tl.program_id(1).to(tl.int64)
    token = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    is_token = token < num_tokens
    prompt = tl.load(prompt_of + token, is_token, -1)
    is_kept = prompt >= 0
    column = tl.load(column_of + token, is_token, 0)
    place = prompts + tl.where(is_kept, prompt, 0) * _PROMPT
    key_at = tl.load(place) + layer * tl.load(place + 1) + kv_head * tl.load(place + 2)
    value_at = tl.load(place + 3) + layer * tl.load(place + 4) + kv_head * tl.load(place + 5)
    keys = origin + tl.multiple_of(key_at, ALIGNED) + column * KEY_SIZE
    values = origin + tl.multiple_of(value_at, ALIGNED) + column * VALUE_SIZE

    by_value = tl.arange(0, VALUE_BLOCK)
    is_number = (by_value < VALUE_SIZE)[None, :]
    v_at = token * v_token + kv_head * v_head
    moved = tl.load(v + v_at[:, None] + by_value[None, :], is_token[:, None] & is_number, 0.0)
    tl.store(values[:, None] + by_value[None, :], moved, is_kept[:, None] & is_number)

    k_at = token * k_token + kv_head * k_head
    if ROTATES:
        HALF: tl.constexpr = KEY_SIZE // 2
        by = tl.arange(0, HALF_BLOCK)
        is_angle = by < HALF
        here = is_token[:, None] & is_angle[None, :]
        angle = token[:, None] * KEY_SIZE + by[None, :]
        first_cos, second_cos = tl.load(cos + angle, here, 0.0), tl.load(cos + angle + HALF, here, 0.0)
        first_sin, second_sin = tl.load(sin + angle, here, 0.0), tl.load(sin + angle + HALF, here, 0.0)
        first_cos, second_cos = first_cos.to(tl.float32), second_cos.to(tl.float32)
        first_sin, second_sin = first_sin.to(tl.float32), second_sin.to(tl.float32)

        k_from = k + k_at[:, None] + by[None, :]
        first, second = tl.load(k_from, here, 0.0).to(tl.float32), tl.load(k_from + HALF, here, 0.0).to(tl.float32)
        if HAS_NORMS:
            first, second = _normed(first, second, k_weight, k_eps, offset, by, is_angle, HALF)
        kept = is_kept[:, None] & is_angle[None, :]
        k_to = keys[:, None] + by[None, :]
        tl.store(k_to, (first * first_cos - second * first_sin).to(origin.dtype.element_ty), kept)
        tl.store(k_to + HALF, (second * second_cos + first * second_sin).to(origin.dtype.element_ty), kept)

        for number in tl.static_range(GROUP):
            q_at = token * q_token + (kv_head * GROUP + number) * KEY_SIZE
            q_from = q + q_at[:, None] + by[None, :]
            first, second = tl.load(q_from, here, 0.0).to(tl.float32), tl.load(q_from + HALF, here, 0.0).to(tl.float32)
            if HAS_NORMS:
                first, second = _normed(first, second, q_weight, q_eps, offset, by, is_angle, HALF)
            tl.store(q_from, (first * first_cos - second * first_sin).to(q.dtype.element_ty), here)
            tl.store(q_from + HALF, (second * second_cos + first * second_sin).to(q.dtype.element_ty), here)
    else:
        by_key = tl.arange(0, KEY_BLOCK)
        is_key = (by_key < KEY_SIZE)[None, :]
        moved = tl.load(k + k_at[:, None] + by_key[None, :], is_token[:, None] & is_key, 0.0)
        tl.store(keys[:, None] + by_key[None, :], moved, is_kept[:, None] & is_key)


@triton.jit(do_not_specialize=_CHANGING, do_not_specialize_on_alignment=_TABLES)
def _note_kernel(  # type: ignore[no-untyped-def]
    seen_origin, prompts, tokens, hidden, num_tokens, num_hidden, row, TOKENS: tl.constexpr
):
    """Run program (block of tokens, and of hidden columns)."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    is_token = token < num_tokens
    prompt = tl.load(tokens + 3 * row + token, is_token, -1)
    is_kept = prompt >= 0
    column = tl.load(tokens + 4 * row + token, is_token, 0)
    place = prompts + tl.where(is_kept, prompt, 0) * _PROMPT
    position, scope = tl.load(tokens + row + token, is_token, 0), tl.load(tokens + 2 * row + token, is_token, 0)
    tl.store(seen_origin + tl.load(place + 6) + column, scope, is_kept)
    tl.store(seen_origin + tl.load(place + 7) + column, position, is_kept)
    at = tl.load(hidden + token, token < num_hidden, _NOWHERE)
    tl.store(seen_origin + at, tl.full([TOKENS], _UNSEEN, tl.int64), at != _NOWHERE)


def empty_origin(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor from which addresses are counted; it has to live as long as the addresses are used."""
    return torch.zeros(64, dtype=dtype, device=device)
