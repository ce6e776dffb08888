"""Operations between the linear layers on a GPU, in Triton: norms and SwiGLU, each one pass over the tokens.

With FP8 (layers/fp8.py) they also quantize their output, by a scale for each token, so that it is not read again.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hpd_core.layers.fp8 import LARGEST, SHARE, SMALLEST

_LARGEST_FP8 = tl.constexpr(LARGEST)  # a kernel reads no Python numbers but these
_SHARE = tl.constexpr(SHARE)
_SMALLEST = tl.constexpr(SMALLEST)
_COLUMNS = 4096
"""Columns of SwiGLU at a time, if rows are not quantized as a whole."""


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
    x, delta, weight, out, scales, size, eps, HAS_DELTA: tl.constexpr, QUANTIZES: tl.constexpr, BLOCK: tl.constexpr
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
    normed = wide * factor * tl.load(weight + by, is_number, 0.0).to(tl.float32)
    if QUANTIZES:
        # As it is where nothing is quantized: rounded to the type of the stream first.
        small, scale = _quantized(normed.to(x.dtype.element_ty).to(tl.float32), out.dtype.element_ty)
        tl.store(out + at, small, is_number)
        tl.store(scales + row, scale)
    else:
        tl.store(out + at, normed.to(out.dtype.element_ty), is_number)


@triton.jit
def _swiglu_kernel(gate_up, out, scales, size, QUANTIZES: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute a (row, block of columns) per program."""
    row = tl.program_id(0).to(tl.int64)
    by = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_number = by < size
    at = row * (2 * size) + by
    gate = tl.load(gate_up + at, is_number, 0.0).to(tl.float32)
    up = tl.load(gate_up + at + size, is_number, 0.0).to(tl.float32)
    product = gate / (1 + tl.exp(-gate)) * up
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


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `delta` to the residual stream `x`, in place, and return its RMS norm times `weight`.

    Args:
        x, delta: [T, D], without gaps; weight: [D].
    """
    out = torch.empty_like(x)
    _norm(x, delta, weight, eps, out, None)
    return out


def add_norm_fp8(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Compute `add_norm` in FP8: [T, D], and the scale of each token, fp32 [T]."""
    out, scales = _new_fp8(len(x), x.shape[1], x.device)
    _norm(x, delta, weight, eps, out, scales)
    return out, scales


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


def _norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float, out: Tensor, scales: Tensor | None) -> None:
    size = x.shape[1]
    block = triton.next_power_of_2(size)
    _norm_kernel[(len(x),)](
        x,
        x if delta is None else delta,
        weight,
        out,
        x if scales is None else scales,
        size,
        eps,
        HAS_DELTA=delta is not None,
        QUANTIZES=scales is not None,
        BLOCK=block,
        num_warps=_warps(block),
    )


def swiglu(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up, [T, I]. gate_up: [T, 2 I], both side by side, without gaps."""
    num_tokens, both = gate_up.shape
    size = both // 2
    out = gate_up.new_empty(num_tokens, size)
    block = min(_COLUMNS, triton.next_power_of_2(size))
    _swiglu(gate_up, out, None, size, block)
    return out


def swiglu_fp8(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `swiglu` in FP8: [T, I], and the scale of each token, fp32 [T]."""
    num_tokens, both = gate_up.shape
    size = both // 2
    out, scales = _new_fp8(num_tokens, size, gate_up.device)
    _swiglu(gate_up, out, scales, size, triton.next_power_of_2(size))
    return out, scales


def _swiglu(gate_up: Tensor, out: Tensor, scales: Tensor | None, size: int, block: int) -> None:
    options: dict[str, Any] = {"QUANTIZES": scales is not None, "BLOCK": block, "num_warps": _warps(block)}
    grid = (len(out), triton.cdiv(size, block))
    _swiglu_kernel[grid](gate_up, out, out if scales is None else scales, size, **options)


def _warps(block: int) -> int:
    """Return the warps of a program that holds `block` numbers: 16 a thread."""
    return max(1, min(16, block // 512))
