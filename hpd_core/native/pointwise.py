"""Binding of `pointwise.cpp` to tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.native import library

Norm = tuple[Tensor, float]
"""RMS norm: its weight [D], and the epsilon that is added to the mean square."""


def norm_of(module: Any) -> Norm:
    """Return the weight and epsilon of one of transformers' RMS norms."""
    return module.weight, module.variance_epsilon


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `delta` to the residual stream `x`, in place, and return its RMS norm times `weight`.

    Args:
        x, delta: [..., D]; weight: [D].
    """
    out = torch.empty_like(x)
    _check(x, weight, out, *(() if delta is None else (delta,)))
    size = x.shape[-1]
    if weight.shape != (size,) or (delta is not None and delta.shape != x.shape):
        raise RuntimeError(f"a norm of {tuple(weight.shape)} for rows of {tuple(x.shape)}")
    library.function("add_norm", x.dtype)(
        *(x.data_ptr(), None if delta is None else delta.data_ptr(), weight.data_ptr(), x.data_ptr(), out.data_ptr()),
        *(x.numel() // size, size, eps, torch.get_num_threads()),
    )
    return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Apply rotary embedding to queries or keys, in place. x: [T, H, D]; cos, sin: [T, D], D even."""
    _check(x, cos, sin)
    num_tokens, num_heads, size = x.shape
    if cos.shape != (num_tokens, size) or sin.shape != cos.shape or size % 2:
        raise RuntimeError(f"angles of {tuple(cos.shape)} and {tuple(sin.shape)} for heads of {tuple(x.shape)}")
    addresses = (x.data_ptr(), cos.data_ptr(), sin.data_ptr(), x.data_ptr())
    library.function("rotate", x.dtype)(*addresses, num_tokens, num_heads, size, 0, torch.get_num_threads())


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, norms: tuple[Norm, Norm] | None) -> tuple[Tensor, Tensor]:
    """Apply rotary embedding to queries [T, H, D] and keys [T, H_kv, D], after their norms if they have some.

    Args:
        cos, sin: [T, D], D even.
    """
    if norms is not None:
        q, k = (add_norm(x, None, *norm) for x, norm in zip((q, k), norms, strict=True))
    rotate(q, cos, sin)
    rotate(k, cos, sin)
    return q, k


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return silu(gate) * up, in the memory of `gate`."""
    _check(gate, up)
    if gate.shape != up.shape:
        raise RuntimeError(f"a gate of {tuple(gate.shape)} for {tuple(up.shape)}")
    addresses = (gate.data_ptr(), up.data_ptr(), gate.data_ptr())
    library.function("swiglu", gate.dtype)(*addresses, gate.numel(), torch.get_num_threads())
    return gate


def choose(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each row of `logits` [n, V], the likeliest token, int64 [n]; its logit and log(sum(exp)), float32
    [n].
    """
    _check(logits)
    tokens = torch.empty(len(logits), dtype=torch.int64)
    scores, normalizers = torch.empty(2, len(logits), dtype=torch.float32)
    library.function("choose", logits.dtype)(
        *(logits.data_ptr(), *logits.shape, tokens.data_ptr(), scores.data_ptr(), normalizers.data_ptr()),
        torch.get_num_threads(),
    )
    return tokens, scores, normalizers


def takes(x: Tensor) -> bool:
    """Return whether the library reads such a tensor."""
    return x.device.type == "cpu" and x.dtype in library.DTYPES and x.is_contiguous()


def _check(*tensors: Tensor) -> None:
    """Raise RuntimeError for tensors that the library does not read: it does not check addresses."""
    for x in tensors:
        if not takes(x) or x.dtype != tensors[0].dtype:
            raise RuntimeError(f"not a tensor that the library reads: {x.dtype} {tuple(x.shape)} by {x.stride()}")
