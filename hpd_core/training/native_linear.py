"""Linear layers that train in bfloat16 on a CPU with tiles (AMX): the gradient of the weight by `training_linear.cpp`.

Torch transposes both of its factors in a way that takes several times as long as the product.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.layers.packed_linears import is_waited_for
from hpd_core.native import library, linear

_ROWS, _TOKENS = 16, 32
"""Divisor of a weight's rows; divisor of its columns, and of the padded number of tokens."""


def call(module: Any, x: Tensor) -> Tensor:
    """Return the module's output for x, [T, K]; with our gradient if it is a plain linear layer that learns."""
    if type(module) is not torch.nn.Linear or is_waited_for(module) or "forward" in module.__dict__:
        made: Tensor = module(x)
        return made
    return forward(module, x)


def forward(module: torch.nn.Linear, x: Tensor) -> Tensor:
    """Compute the layer's own forward. x: [..., K]"""
    if not (module.weight.requires_grad and x.dtype == torch.bfloat16 and takes(module.weight)):
        return F.linear(x, module.weight, module.bias)
    out: Tensor = _Linear.apply(x.flatten(0, -2), module.weight, module.bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], len(module.weight))


def takes(weight: Tensor) -> bool:
    """Return whether `weight_gradient` supports this weight, [N, K]."""
    return linear.fits(weight) and weight.shape[0] % _ROWS == 0


class _Linear(torch.autograd.Function):
    """Autograd function of `torch.nn.functional.linear` for [T, K]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the product, [T, N]."""
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of x, weight and bias."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        gradient = gradients[0].contiguous()
        return (
            gradient @ weight if of_x else None,
            weight_gradient(gradient, x.contiguous()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """Return gradient^T x, [N, K], sums in fp32. gradient: [T, N]; x: [T, K], N a multiple of 16 and K of 32."""
    num_tokens, rows, columns = *gradient.shape, x.shape[1]
    if (
        not (linear.is_read(gradient) and linear.is_read(x))
        or len(x) != num_tokens
        or rows % _ROWS
        or columns % _TOKENS
    ):
        raise RuntimeError(f"no product of {gradient.dtype} {tuple(gradient.shape)} and {x.dtype} {tuple(x.shape)}")
    if not num_tokens:
        return x.new_zeros(rows, columns)
    out = x.new_empty(rows, columns)
    threads = torch.get_num_threads()
    memory = x.new_empty((num_tokens + -num_tokens % _TOKENS) * (rows + columns + _ROWS * threads))
    addresses = (tensor.data_ptr() for tensor in (gradient, x, out, memory))
    library.load().hpd_weight_gradient(*addresses, num_tokens, rows, columns, threads)
    return out
