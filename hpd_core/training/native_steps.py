"""Decoder layers as in Llama, by our own functions while they train on a CPU.

Norms, rotary embedding and SwiGLU are one function each, forward and backward (training/native_layers.py), where
transformers makes several copies. Linear layers are the model's own, or peft's; those that learn have a gradient of
ours (training/native_linear.py). Models for which `layers.forward.why_not_ours` gives a reason run by their own code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from hpd_core.layers.forward import decoder_layers, norms_of_heads, why_not_ours, window_of
from hpd_core.native import library
from hpd_core.native.pointwise import norm_of
from hpd_core.training import native_layers
from hpd_core.training.native_linear import call, forward

# In earlier versions of transformers: backward calls the module anew, and would find its own forward.
_REPEATS_CALLS = "__call__" in vars(GradientCheckpointingLayer)


def takes(model: Any) -> bool:
    """Return whether the layers of this model can be computed so, in its present state."""
    if model.device.type != "cpu" or why_not_ours(model, "native") is not None:
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
    run = functools.partial(_layer, layer, cos=cos, sin=sin, batch=hpd_training)
    if layer.gradient_checkpointing and layer.training:
        run = functools.partial(layer._gradient_checkpointing_func, run)
    return run(hidden_states[0])[None]


def _layer(layer: Any, x: Tensor, cos: Tensor, sin: Tensor, batch: Any) -> Tensor:
    """Compute one layer. x: the residual stream, [T, D]; cos, sin: [T, size of a head]."""
    attention, mlp = layer.self_attn, layer.mlp
    x, normed = native_layers.add_norm(x, None, *norm_of(layer.input_layernorm))
    q, k, v = (
        call(project, normed).view(len(x), -1, attention.head_dim)
        for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if (norms := norms_of_heads(attention)) is not None:
        q, k = (native_layers.add_norm(heads, None, *norm)[1] for heads, norm in zip((q, k), norms, strict=True))
    q, k = (native_layers.rotated(heads, cos, sin) for heads in (q, k))
    attend = transformers.AttentionInterface()[attention.config._attn_implementation]
    attended, _ = attend(
        attention,
        *(heads.transpose(0, 1)[None] for heads in (q, k, v)),
        None,
        scaling=attention.scaling,
        sliding_window=window_of(attention),
        hpd_training=batch,
    )
    added = call(attention.o_proj, attended[0].flatten(1))
    x, normed = native_layers.add_norm(x, added, *norm_of(layer.post_attention_layernorm))
    return x + call(mlp.down_proj, native_layers.swiglu(call(mlp.gate_proj, normed), call(mlp.up_proj, normed)))
