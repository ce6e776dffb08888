"""Decoder layers as in Llama while they train on a CPU: norms, rotary embedding and SwiGLU, one function each.

Forward in `pointwise.cpp`, backward in `training_layers.cpp`. The linear layers are the model's own, or peft's; in
bfloat16 with tiles (AMX) the gradient of a weight is `training_linear.cpp`'s: torch transposes both factors in a way
that takes several times as long. Models for which `why_not_ours` gives a reason run by their own code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from hpd_core.layers.forward import LayerParts, decoder_layers, parts_of, scaled, why_not_ours
from hpd_core.native import library, linear
from hpd_core.native.linear import Norm, norm_of
from hpd_core.system.device import is_waited_for


def add_norm(x: Tensor, delta: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return x + delta (x if delta is None), and its RMS norm. x, delta: [..., D]"""
    found: tuple[Tensor, Tensor] = _AddNorm.apply(x, delta, norm.weight, norm.eps)  # type: ignore[no-untyped-call]
    return found


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary embedding to queries or keys, [T, H, D]; cos, sin: [T, D], D even, which get no gradient."""
    found: Tensor = _Rotated.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return found


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return silu(gate) * up."""
    found: Tensor = _SwiGLU.apply(gate, up)  # type: ignore[no-untyped-call]
    return found


class _AddNorm(torch.autograd.Function):
    """Autograd function of `add_norm`. Only the sum is kept; the backward recomputes its mean square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Compute as `add_norm`."""
        x, weight = x.contiguous(), weight.contiguous()
        delta, total = (None, x) if delta is None else (delta.contiguous(), torch.empty_like(x))
        out = linear.add_norm(x, delta, Norm(weight, eps), total)
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
        x = x.contiguous()
        return linear.rotate(x, cos, sin, torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of x."""
        gradient, (cos, sin) = gradients[0].contiguous(), ctx.saved_tensors
        return linear.rotate(gradient, cos, sin, torch.empty_like(gradient), inverse=True), None, None


class _SwiGLU(torch.autograd.Function):
    """Autograd function of `swiglu`. Gate and up are kept."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """Compute as `swiglu`."""
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return linear.gated(gate, up, torch.empty_like(gate))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of gate and up."""
        gate, up = ctx.saved_tensors
        of_gate, of_up = torch.empty_like(gate), torch.empty_like(up)
        _call("swiglu_backward", (gate, up, gradients[0].contiguous(), of_gate, of_up), gate.numel())
        return of_gate, of_up


def _call(name: str, tensors: tuple[Tensor | None, ...], *others: Tensor | float | None) -> None:
    """Call the library's function for the dtype of `tensors`. Raise RuntimeError as `linear.check`."""
    given = [x for x in tensors if x is not None]
    linear.check(*given)
    arguments = [x.data_ptr() if isinstance(x, Tensor) else x for x in (*tensors, *others)]
    library.function(name, given[0].dtype)(*arguments, torch.get_num_threads())


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
    if not (module.weight.requires_grad and x.dtype == torch.bfloat16 and takes_weight(module.weight)):
        return F.linear(x, module.weight, module.bias)
    out: Tensor = _Linear.apply(x.flatten(0, -2), module.weight, module.bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], len(module.weight))


def takes_weight(weight: Tensor) -> bool:
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


# In earlier versions of transformers: backward calls the module anew, and would find its own forward.
_REPEATS_CALLS = "__call__" in vars(GradientCheckpointingLayer)


def takes(model: Any) -> bool:
    """Return whether the layers of this model can be computed so, in its present state."""
    if model.device.type != "cpu" or why_not_ours(model, "native") is not None:
        return False
    if not all(parts_of(layer).is_as_in_llama for layer in decoder_layers(model)):
        return False
    if torch.is_autocast_enabled("cpu"):  # then numbers are not of the model's dtype
        return False
    repeats = any(layer.gradient_checkpointing for layer in decoder_layers(model))
    return library.is_here() and not (repeats and _REPEATS_CALLS)


@contextmanager
def active(model: Any) -> Iterator[None]:
    """Compute the layers so while the context is entered, if they can be; the model itself stays unchanged."""
    replaced = {}
    if takes(model):
        replaced = {layer: functools.partial(_forward, layer) for layer in decoder_layers(model)}
        head = model.lm_head
        if type(head) is torch.nn.Linear and "forward" not in head.__dict__:
            replaced[head] = functools.partial(forward, head)
    try:
        for module, ours in replaced.items():
            module.__dict__["forward"] = ours
        yield
    finally:
        for module in replaced:
            del module.__dict__["forward"]


def _forward(
    layer: Any, hidden_states: Tensor, *, position_embeddings: tuple[Tensor, Tensor], hpd_training: Any, **_: Any
) -> Tensor:
    """Replace a layer's own forward, including its gradient checkpointing."""
    cos, sin = (angles[0] for angles in position_embeddings)
    run = functools.partial(_layer, parts_of(layer), cos=cos, sin=sin, batch=hpd_training)
    if layer.gradient_checkpointing and layer.training:
        run = functools.partial(layer._gradient_checkpointing_func, run)
    return run(hidden_states[0])[None]


def _layer(layer: LayerParts, x: Tensor, cos: Tensor, sin: Tensor, batch: Any) -> Tensor:
    """Compute one layer. x: the residual stream, [T, D]; cos, sin: [T, size of a head]."""
    attention, mlp = layer.attention, layer.mlp
    x, normed = add_norm(x, None, norm_of(layer.before_attention))
    q, k, v = (call(project, normed).view(len(x), -1, attention.head_dim) for project in layer.projections)
    if (norms := layer.head_norms) is not None:
        q, k = (add_norm(heads, None, norm)[1] for heads, norm in zip((q, k), norms, strict=True))
    if layer.rotary is not None:
        q, k = (rotated(heads, cos, sin) for heads in (q, k))
    attend = transformers.AttentionInterface()[attention.config._attn_implementation]
    attended, _ = attend(
        attention,
        *(heads.transpose(0, 1)[None] for heads in (q, k, v)),
        None,
        scaling=attention.scaling,
        sliding_window=layer.window,
        hpd_training=batch,
    )
    added = scaled(call(attention.o_proj, attended[0].flatten(1)), layer.factor)
    x, normed = add_norm(x, added, norm_of(layer.before_mlp))
    gate, up = (call(project, normed) for project in layer.gates)
    return x + scaled(call(mlp.down_proj, swiglu(gate, up)), layer.factor)
