"""Layers as in Llama on a GPU: few launches, each of which reads and writes its tokens once.

Nine a layer, whatever the number of cohorts, prefixes and categories: norm, q|k|v, rotary embedding with the cache's
writes, attention, o, norm, gate|up, SwiGLU, down. The projections side by side are one product each, by weights that
are joined once; the model's own layers have views of them. In FP8 norms and SwiGLU quantize their output, and one more
launch does so between attention and o. The last layer after its attention is computed only for the tokens whose logits
are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.attention.triton_step import TritonStep
from hpd_core.layers.forward import decoder_layers, norms_of_heads, window_of
from hpd_core.layers.fp8 import Fp8Linear, product
from hpd_core.layers.packed_linears import is_waited_for
from hpd_core.layers.triton_pointwise import add_norm, add_norm_fp8, quantize, swiglu, swiglu_fp8
from hpd_core.native.pointwise import Norm, norm_of

Rows = Tensor | tuple[Tensor, Tensor]
"""Input of a product: [T, K], or in FP8 with the scale of each token."""
_LOGIT_BYTES = 2**29
"""Bytes of logits at a time: a GPU wants large products."""


@dataclass(frozen=True, slots=True)
class _Product:
    """Product [T, N]; `is_fp8`: of rows in FP8. A checkpoint may leave some layers in full precision."""

    multiply: Callable[[Any], Tensor]
    is_fp8: bool = False


@dataclass(frozen=True, slots=True)
class _Layer:
    before_attention: Norm
    before_mlp: Norm
    of_heads: tuple[Norm, Norm] | None
    qkv: _Product
    o: _Product
    gate_up: _Product
    down: _Product
    head_size: int
    window: int | None
    scale: float

    def heads(self, x: Tensor, delta: Tensor | None) -> Tensor:
        """Return queries, keys and values of `x` plus `delta`, [T, (H + 2 H_kv) * D]."""
        return self.qkv.multiply(_normed(x, delta, self.before_attention, self.qkv))

    def out(self, attended: Tensor) -> Tensor:
        """Return the output of attention's last projection, [T, D]."""
        return self.o.multiply(quantize(attended) if self.o.is_fp8 else attended)

    def mlp(self, x: Tensor, delta: Tensor) -> Tensor:
        """Return the output of the MLP, [T, D]."""
        both = self.gate_up.multiply(_normed(x, delta, self.before_mlp, self.gate_up))
        return self.down.multiply(swiglu_fp8(both) if self.down.is_fp8 else swiglu(both))


def _normed(x: Tensor, delta: Tensor | None, norm: Norm, product: _Product) -> Rows:
    return add_norm_fp8(x, delta, *norm) if product.is_fp8 else add_norm(x, delta, *norm)


class TritonLayers:
    """Layers of a model for which `forward.why_not_ours` is None."""

    by: Literal["triton"] = "triton"

    def __init__(self, model: Any) -> None:
        """Join weights side by side: the model's own layers become views of them."""
        self._model = model
        with torch.no_grad():
            self._layers = [_layer(layer) for layer in decoder_layers(model)]
        self._last = norm_of(model.model.norm)

    @property
    def windows(self) -> set[int]:
        """Sliding windows of its layers."""
        return {layer.window for layer in self._layers if layer.window is not None}

    def logits(self, step: TritonStep) -> Iterator[Tensor]:
        """Return the logits of the wanted rows, as blocks of rows of [n, vocabulary], in order.

        The device has all layers when this returns, and computes a block when it is asked for.
        """
        return self.head(self.hidden(step))

    def hidden(self, step: TritonStep) -> Tensor:
        """Return the output of the last norm, [n, D], of the n tokens whose logits are wanted."""
        base = self._model.model
        step.note()
        x = base.embed_tokens(step.token_ids)  # the residual stream, [T, D]
        cos, sin = (angles[0] for angles in base.rotary_emb(x[None], position_ids=step.positions[None]))
        delta = None  # what the layer before adds to it
        for number, layer in enumerate(self._layers):
            attended = self._attention(step, number, layer, layer.heads(x, delta), cos, sin)
            if number == len(self._layers) - 1:  # nobody attends to what comes behind
                attended, x = (rows.index_select(0, step.logit_rows) for rows in (attended, x))
                if not len(x):
                    return x
            delta = layer.mlp(x, layer.out(attended))
        return add_norm(x, delta, *self._last)

    def _attention(
        self, step: TritonStep, number: int, layer: _Layer, heads: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        """Return the attention, [T, H * D]."""
        split = heads.view(len(heads), -1, layer.head_size)
        count = step.num_kv_heads
        q, k, v = split[:, : -2 * count], split[:, -2 * count : -count], split[:, -count:]
        step.rotate_and_store(number, q, k, v, cos, sin, layer.of_heads)
        attended = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        step.attend(number, q, attended, scale=layer.scale, window=layer.window)
        return attended.flatten(1)

    def head(self, hidden: Tensor) -> Iterator[Tensor]:
        """Yield the logits of the output of `hidden`, in blocks."""
        at_once = max(16, _LOGIT_BYTES // (self._model.lm_head.out_features * hidden.element_size()))
        for first in range(0, len(hidden), at_once):
            yield self._model.lm_head(hidden[first : first + at_once])


def _layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    dtype = layer.input_layernorm.weight.dtype
    return _Layer(
        norm_of(layer.input_layernorm),
        norm_of(layer.post_attention_layernorm),
        norms_of_heads(attention),
        _side_by_side(attention.q_proj, attention.k_proj, attention.v_proj, dtype=dtype),
        _side_by_side(attention.o_proj, dtype=dtype),
        _side_by_side(mlp.gate_proj, mlp.up_proj, dtype=dtype),
        _side_by_side(mlp.down_proj, dtype=dtype),
        attention.head_dim,
        window_of(attention),
        attention.scaling,
    )


def _side_by_side(*linears: Any, dtype: torch.dtype) -> _Product:
    """Return one product with all of these layers, side by side."""
    is_ours = not any(map(is_waited_for, linears))
    if is_ours and all(isinstance(linear, Fp8Linear) for linear in linears):
        weight8 = _joined([linear.weight8 for linear in linears])
        scales, bias = _joined([linear.weight_scales for linear in linears]), _joined_bias(linears)
        return _Product(lambda x: product(x[0], x[1], weight8, scales, bias, dtype), is_fp8=True)
    if not is_ours or not all(map(_is_plain, linears)) or len({linear.weight.dtype for linear in linears}) > 1:
        one = linears[0] if len(linears) == 1 else lambda x: torch.cat([linear(x) for linear in linears], dim=-1)
        return _Product(one)
    weight, bias = _joined([linear.weight for linear in linears]), _joined_bias(linears)
    return _Product(lambda x: F.linear(x, weight, bias))


def _joined_bias(linears: Sequence[Any]) -> Tensor | None:
    """Join the biases: a copy with zeros if only some layers have one; None if none has."""
    biases = [linear.bias for linear in linears]
    like = next((bias for bias in biases if bias is not None), None)
    if like is None:
        return None
    if all(bias is not None for bias in biases):
        return _joined(biases)
    pairs = zip(biases, linears, strict=True)
    return torch.cat([like.new_zeros(linear.out_features) if bias is None else bias for bias, linear in pairs])


def _is_plain(linear: Any) -> bool:
    """Return whether the layer is a matrix product, and nothing else."""
    if type(linear) is not torch.nn.Linear or "forward" in linear.__dict__:
        return False
    return not hasattr(linear.weight, "__tensor_flatten__")  # of several tensors, as quantized ones are


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Join the rows of parts [N] or [N, K]; the parts become views of the result, unless they are side by side
    already.
    """
    first = parts[0].data
    ends = [part.data_ptr() + part.numel() * part.element_size() for part in parts]
    is_joined = all(part.data_ptr() == end for part, end in zip(parts[1:], ends[:-1], strict=True))
    same_memory = len({part.untyped_storage().data_ptr() for part in parts}) == 1
    if is_joined and same_memory and all(part.is_contiguous() for part in parts):
        return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
    # torch knows how to move bytes, whatever they are.
    joined = torch.cat([part.data.contiguous().view(torch.uint8) for part in parts]).view(first.dtype)
    start = 0
    for part in parts:
        part.data = joined[start : start + len(part)]
        start += len(part)
    return joined
