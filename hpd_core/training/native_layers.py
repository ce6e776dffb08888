"""Norms, rotary embedding and SwiGLU on a CPU with gradients: `pointwise.cpp`, backward `training_layers.cpp`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.native import library
from hpd_core.native.pointwise import takes


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + delta (x if delta is None), and its RMS norm times `weight`. x, delta: [..., D]; weight: [D]."""
    if weight.shape != x.shape[-1:] or (delta is not None and delta.shape != x.shape):
        raise RuntimeError(f"a norm of {tuple(weight.shape)} for rows of {tuple(x.shape)}")
    found: tuple[Tensor, Tensor] = _AddNorm.apply(x, delta, weight, eps)  # type: ignore[no-untyped-call]
    return found


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary embedding to queries or keys, [T, H, D]; cos, sin: [T, D], D even, which get no gradient."""
    if cos.shape != (x.shape[0], x.shape[2]) or sin.shape != cos.shape or x.shape[2] % 2:
        raise RuntimeError(f"angles of {tuple(cos.shape)} and {tuple(sin.shape)} for heads of {tuple(x.shape)}")
    found: Tensor = _Rotated.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return found


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return silu(gate) * up."""
    if gate.shape != up.shape:
        raise RuntimeError(f"a gate of {tuple(gate.shape)} for {tuple(up.shape)}")
    found: Tensor = _SwiGLU.apply(gate, up)  # type: ignore[no-untyped-call]
    return found


class _AddNorm(torch.autograd.Function):
    """Autograd function of `add_norm`. Only the sum is kept; the backward recomputes its mean square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Compute as `add_norm`."""
        x, weight = x.contiguous(), weight.contiguous()
        total, out = x if delta is None else torch.empty_like(x), torch.empty_like(x)
        given = (x, None if delta is None else delta.contiguous(), weight, total, out)
        rows = x.numel() // x.shape[-1]
        _call("add_norm", given, rows, x.shape[-1], eps)
        ctx.eps, ctx.has_delta = eps, delta is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight)
        return total, out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, delta and weight."""
        of_total, of_out = gradients
        total, weight = ctx.saved_tensors
        if of_out is None:
            return of_total, of_total if ctx.has_delta else None, None, None
        gradient = torch.empty_like(total)
        size = total.shape[-1]
        parts = total.new_zeros(torch.get_num_threads(), size, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        of_total = None if of_total is None else of_total.contiguous()
        given = (total, weight, of_total, of_out.contiguous(), gradient)
        _call("norm_backward", given, parts, total.numel() // size, size, ctx.eps)
        of_weight = None if parts is None else parts.sum(0).to(weight.dtype)
        return gradient, gradient if ctx.has_delta else None, of_weight, None


class _Rotated(torch.autograd.Function):
    """Autograd function of `rotated`. It is linear, so that only the angles are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Compute as `rotated`."""
        cos, sin = cos.contiguous(), sin.contiguous()
        ctx.save_for_backward(cos, sin)
        return _turn(x.contiguous(), cos, sin, inverse=False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of x."""
        return _turn(gradients[0].contiguous(), *ctx.saved_tensors, inverse=True), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, *, inverse: bool) -> Tensor:
    out = torch.empty_like(x)
    _call("rotate", (x, cos, sin, out), *x.shape, int(inverse))
    return out


class _SwiGLU(torch.autograd.Function):
    """Autograd function of `swiglu`. Gate and up are kept."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """Compute as `swiglu`."""
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        out = torch.empty_like(gate)
        _call("swiglu", (gate, up, out), gate.numel())
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of gate and up."""
        gate, up = ctx.saved_tensors
        of_gate, of_up = torch.empty_like(gate), torch.empty_like(up)
        _call("swiglu_backward", (gate, up, gradients[0].contiguous(), of_gate, of_up), gate.numel())
        return of_gate, of_up


def _call(name: str, tensors: tuple[Tensor | None, ...], *others: Tensor | float | None) -> None:
    """Call the library's function for the dtype of `tensors`. Raise RuntimeError for tensors that it cannot read: it
    does not check addresses itself.
    """
    first = tensors[0]
    assert first is not None
    for x in tensors:
        if x is not None and (not takes(x) or x.dtype != first.dtype):
            raise RuntimeError(f"not a tensor that the library reads: {x.dtype} {tuple(x.shape)} by {x.stride()}")
    arguments = [x.data_ptr() if isinstance(x, Tensor) else x for x in (*tensors, *others)]
    library.function(name, first.dtype)(*arguments, torch.get_num_threads())
