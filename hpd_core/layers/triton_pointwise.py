"""Operations between the linear layers on a GPU, in Triton: norms and gated activations, each one pass over the tokens.

With FP8 (layers/fp8.py) they also quantize their output, by a scale for each token, so that it is not read again.

Choice of the next tokens on a GPU, in Triton: one pass over the logits for the likeliest token and its probability.

The same program looks up the few logits that a constraint names. If a constraint allows many, the likeliest of all is
mostly one of them; if not, the row is read once more, beside the mask. Nothing is gathered.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpd_core.layers.fp8 import LARGEST, SHARE, SMALLEST
from hpd_core.native.linear import Norm

_LARGEST_FP8 = tl.constexpr(LARGEST)  # a kernel reads no Python numbers but these
_SHARE = tl.constexpr(SHARE)
_SMALLEST = tl.constexpr(SMALLEST)
_COLUMNS = 4096
"""Columns of a gated activation at a time, if rows are not quantized as a whole."""


@triton.jit
def _quantized(row, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Quantize a row to FP8. Return it, and its scale as in `fp8.quantize_rows`, NaN if it is not finite."""
    largest = tl.max(tl.abs(row), 0)
    scale = tl.where(largest == 0, 1.0, tl.maximum(largest, _SMALLEST) * _SHARE)
    scale += tl.sum(row * 0.0, 0)
    small = tl.div_rn(row, tl.zeros_like(row) + scale)
    return tl.minimum(tl.maximum(small, -_LARGEST_FP8), _LARGEST_FP8).to(TYPE), scale


@triton.jit
def _norm_kernel(  # type: ignore[no-untyped-def]
    x,
    delta,
    weight,
    out,
    scales,
    size,
    eps,
    offset,
    HAS_DELTA: tl.constexpr,
    QUANTIZES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute a row per program."""
    row = tl.program_id(0).to(tl.int64)
    by = tl.arange(0, BLOCK)
    is_number = by < size
    at = row * size + by
    stream = tl.load(x + at, is_number, 0.0)
    if HAS_DELTA:
        stream = (stream.to(tl.float32) + tl.load(delta + at, is_number, 0.0).to(tl.float32)).to(x.dtype.element_ty)
        tl.store(x + at, stream, is_number)
    wide = stream.to(tl.float32)
    factor = tl.rsqrt(tl.sum(wide * wide, 0) / size + eps)
    normed = wide * factor * (tl.load(weight + by, is_number, 0.0).to(tl.float32) + offset)
    if QUANTIZES:
        # As it is where nothing is quantized: rounded to the type of the stream first.
        small, scale = _quantized(normed.to(x.dtype.element_ty).to(tl.float32), out.dtype.element_ty)
        tl.store(out + at, small, is_number)
        tl.store(scales + row, scale)
    else:
        tl.store(out + at, normed.to(out.dtype.element_ty), is_number)


@triton.jit
def _gated_kernel(  # type: ignore[no-untyped-def]
    gate_up, out, scales, size, IS_GELU: tl.constexpr, QUANTIZES: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute a (row, block of columns) per program."""
    row = tl.program_id(0).to(tl.int64)
    by = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_number = by < size
    at = row * (2 * size) + by
    gate = tl.load(gate_up + at, is_number, 0.0).to(tl.float32)
    up = tl.load(gate_up + at + size, is_number, 0.0).to(tl.float32)
    # GELU by its approximation with tanh: 1/2 (1 + tanh(z)) = 1 / (1 + e^-2z).
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if IS_GELU else gate
    product = gate / (1 + tl.exp(-inner)) * up
    if QUANTIZES:
        small, scale = _quantized(product.to(gate_up.dtype.element_ty).to(tl.float32), out.dtype.element_ty)
        tl.store(out + row * size + by, small, is_number)
        tl.store(scales + row, scale)
    else:
        tl.store(out + row * size + by, product.to(out.dtype.element_ty), is_number)


@triton.jit
def _quantize_kernel(x, out, scales, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute a row per program."""
    row = tl.program_id(0).to(tl.int64)
    by = tl.arange(0, BLOCK)
    is_number = by < size
    wide = tl.load(x + row * size + by, is_number, 0.0).to(tl.float32)
    small, scale = _quantized(wide, out.dtype.element_ty)
    tl.store(out + row * size + by, small, is_number)
    tl.store(scales + row, scale)


def add_norm(x: Tensor, delta: Tensor | None, norm: Norm, *, to_fp8: bool = False) -> Any:
    """Add `delta` to the residual stream `x`, in place, and return its RMS norm, [T, D].

    Args:
        x, delta: [T, D], without gaps.
        to_fp8: return it in FP8, with the scale of each token, fp32 [T].
    """
    size = x.shape[1]
    block = triton.next_power_of_2(size)
    out, scales = _new_fp8(len(x), size, x.device) if to_fp8 else (torch.empty_like(x), None)
    _norm_kernel[(len(x),)](
        x,
        x if delta is None else delta,
        norm.weight,
        out,
        x if scales is None else scales,
        size,
        norm.eps,
        norm.offset,
        HAS_DELTA=delta is not None,
        QUANTIZES=to_fp8,
        BLOCK=block,
        num_warps=_warps(block),
    )
    return out if scales is None else (out, scales)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize x [T, D], without gaps, to FP8, with the scale of each token, fp32 [T]: `fp8.quantize_rows` in one
    pass.
    """
    out, scales = _new_fp8(len(x), x.shape[1], x.device)
    block = triton.next_power_of_2(x.shape[1])
    _quantize_kernel[(len(x),)](x, out, scales, x.shape[1], BLOCK=block, num_warps=_warps(block))
    return out, scales


def _new_fp8(num_tokens: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    values = torch.empty(num_tokens, size, dtype=torch.float8_e4m3fn, device=device)
    return values, torch.empty(num_tokens, dtype=torch.float32, device=device)


def gated(gate_up: Tensor, *, is_gelu: bool = False, to_fp8: bool = False) -> Any:
    """Return silu(gate) * up, [T, I]; with `to_fp8` in FP8, with the scale of each token, fp32 [T].

    Args:
        gate_up: [T, 2 I], both side by side, without gaps.
        is_gelu: gelu (approximated with tanh) in place of silu.
    """
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    block = triton.next_power_of_2(size) if to_fp8 else min(_COLUMNS, triton.next_power_of_2(size))
    out, scales = _new_fp8(num_tokens, size, gate_up.device) if to_fp8 else (gate_up.new_empty(num_tokens, size), None)
    options: dict[str, Any] = {"IS_GELU": is_gelu, "QUANTIZES": to_fp8, "BLOCK": block, "num_warps": _warps(block)}
    grid = (num_tokens, triton.cdiv(size, block))
    _gated_kernel[grid](gate_up, out, out if scales is None else scales, size, **options)
    return out if scales is None else (out, scales)


def _warps(block: int) -> int:
    """Return the warps of a program that holds `block` numbers: 16 a thread."""
    return max(1, min(16, block // 512))


_CHOICE_COLUMNS = 8192
# Parts of larger tensors, whose addresses are multiples of 16 bytes now and then: Triton would compile anew for these.
_PARTS = ("logits", "bound", "allowed", "masked", "masks", "tokens", "scores", "normalizers", "picked")
_LEAST = tl.constexpr(-3.4028234663852886e38)
"""Lower bound of allowed logits: what is allowed and impossible comes before what is not allowed."""


@triton.jit(do_not_specialize=("most",), do_not_specialize_on_alignment=_PARTS)
def _choose_kernel(  # type: ignore[no-untyped-def]
    logits,
    bound,
    allowed,
    masked,
    masks,
    tokens,
    scores,
    normalizers,
    picked,
    vocabulary,
    most,
    row_stride,
    HAS_BOUND: tl.constexpr,
    HAS_MASKED: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEW: tl.constexpr,
):
    """Compute a row per program: online softmax without its weights (arXiv:1805.02867). IS_ALIGNED: rows begin at
    multiples of 16 bytes.
    """
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * row_stride
    if IS_ALIGNED:
        start = tl.multiple_of(start, 16)
    best = tl.full([COLUMNS], float("-inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    place = tl.zeros([COLUMNS], tl.int32)
    by = tl.arange(0, COLUMNS)
    for begin in range(0, vocabulary, COLUMNS):
        column = begin + by
        found = tl.load(start + column, column < vocabulary, float("-inf")).to(tl.float32)
        now = tl.maximum(best, found)
        is_possible = now > float("-inf")
        safe = tl.where(is_possible, now, 0.0)
        total = total * tl.exp(best - safe) + tl.exp(found - safe)
        place = tl.where(found > best, column, place)
        best = now
    highest = tl.max(best, 0)
    # Of equal ones the lowest id.
    token = tl.min(tl.where(best == highest, place, vocabulary), 0)
    normalizer = highest + tl.log(tl.sum(total * tl.exp(best - highest), 0))
    score = highest
    if HAS_BOUND:
        number = tl.load(bound + row)
        if number >= 0:
            few = tl.arange(0, FEW)
            top = tl.full([FEW], float("-inf"), tl.float32)
            where = tl.zeros([FEW], tl.int32)
            for begin in range(0, most, FEW):
                choice = begin + few
                column = tl.load(allowed + number * most + choice, choice < most, 0)
                found = tl.load(start + column, choice < most, float("-inf")).to(tl.float32)
                where = tl.where(found > top, choice, where)
                top = tl.maximum(top, found)
            score = tl.max(top, 0)
            choice_of = tl.min(tl.where(top == score, where, most), 0)
            choice_of = tl.minimum(choice_of, most - 1)
            token = tl.load(allowed + number * most + choice_of).to(tl.int32)
            tl.store(picked + number, choice_of)
    if HAS_MASKED:
        kind = tl.load(masked + row)
        if kind >= 0:
            mask = masks + kind * vocabulary
            if tl.load(mask + token) == 0:
                best = tl.full([COLUMNS], float("-inf"), tl.float32)
                place = tl.zeros([COLUMNS], tl.int32)
                for begin in range(0, vocabulary, COLUMNS):
                    column = begin + by
                    found = tl.load(start + column, column < vocabulary, float("-inf")).to(tl.float32)
                    is_allowed = tl.load(mask + column, column < vocabulary, 0) != 0
                    found = tl.where(is_allowed, tl.maximum(found, _LEAST), float("-inf"))
                    place = tl.where(found > best, column, place)
                    best = tl.maximum(best, found)
                token = tl.min(tl.where(best == tl.max(best, 0), place, vocabulary), 0)
                score = tl.load(start + token).to(tl.float32)
    tl.store(tokens + row, token)
    tl.store(scores + row, score)
    tl.store(normalizers + row, normalizer)


def choose(
    logits: Tensor,
    bound: Tensor | None,
    allowed: Tensor | None,
    masked: Tensor | None,
    masks: Tensor | None,
    tokens: Tensor,
    scores: Tensor,
    normalizers: Tensor,
    picked: Tensor,
) -> None:
    """Write, for each row, the likeliest token that it may have, its logit, and log(sum(exp)) of all.

    Args:
        logits: [n, V], rows without gaps; all of a tensor, or some of its rows.
        bound: int64 [n], index of the row of `allowed` for this row; -1: anything. None: no row has a constraint.
        allowed: int64 [m, most], token ids.
        masked: int64 [n], index of the row of `masks` for this row; -1: no mask. None: no row has one.
        masks: bool [k, V], each of which allows something.
        tokens, scores, normalizers: int64, float32, float32 [n]; they are written.
        picked: int64 [m], which of the tokens allowed it is; it is written for the rows of `bound`.
    """
    if not len(logits):
        return
    _choose_kernel[(len(logits),)](
        logits,
        logits if bound is None else bound,
        logits if allowed is None else allowed,
        logits if masked is None else masked,
        logits if masks is None else masks.view(torch.uint8),
        tokens,
        scores,
        normalizers,
        picked,
        logits.shape[1],
        1 if allowed is None else allowed.shape[1],
        logits.stride(0),
        HAS_BOUND=bound is not None,
        HAS_MASKED=masked is not None,
        IS_ALIGNED=not (logits.stride(0) * logits.itemsize) % 16,
        COLUMNS=_CHOICE_COLUMNS,
        FEW=256,
        num_warps=8,
    )
