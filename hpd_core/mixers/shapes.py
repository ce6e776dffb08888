"""Sizes of what each module of a layer beside attention keeps, read from the module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from hpd_core.mixers.states import MixerShape


def convolution(module: Any) -> MixerShape:
    """Return the shape of a module that keeps only the inputs of its one convolution."""
    (found,) = (part for part in module.children() if isinstance(part, torch.nn.Conv1d))
    weight = found.weight
    return MixerShape(found.in_channels, found.kernel_size[0], weight.dtype, weight.device)


def delta_rule(module: Any) -> MixerShape:
    """Return the shape of a gated delta rule, whose states decay as a whole."""
    return replace(
        convolution(module),
        key_heads=module.num_k_heads,
        heads=module.num_v_heads,
        key_size=module.head_k_dim,
        value_size=module.head_v_dim,
    )


def kimi(module: Any) -> MixerShape:
    """Return the shape of a delta rule whose states decay in each dimension of the keys by itself."""
    heads, size = module.num_heads, module.head_dim
    return replace(
        convolution(module),
        key_heads=heads,
        heads=heads,
        key_size=size,
        value_size=size,
        decay_size=size,
    )


def scan(module: Any) -> MixerShape:
    """Return the shape of Mamba 2."""
    return replace(
        convolution(module),
        key_heads=module.n_groups,
        heads=module.num_heads,
        key_size=module.ssm_state_size,
        value_size=module.head_dim,
        chunk=module.chunk_size,
    )


def channels(module: Any) -> MixerShape:
    """Return the shape of Mamba 1."""
    return replace(
        convolution(module),
        key_heads=getattr(module, "n_mamba_heads", 1),
        heads=module.intermediate_size,
        key_size=module.ssm_state_size,
        value_size=1,
    )


def gated(module: Any) -> MixerShape:
    """Return the shape of RecurrentGemma's recurrence: one number per channel."""
    return replace(convolution(module), key_heads=1, heads=module.lru_width, key_size=1, value_size=1)


def lightning(module: Any) -> MixerShape:
    """Return the shape of lightning attention, which has no convolution."""
    weight, heads, size = module.out_proj.weight, module.num_attention_heads, module.head_dim
    return MixerShape(0, 1, weight.dtype, weight.device, heads, heads, size, size)


def ngrams(module: Any) -> MixerShape:
    """Return the shape of a memory of token ids."""
    return MixerShape(1, module.ngram_size, torch.int64, module.ngram_embedding.weight.device)


def gaps(module: Any) -> MixerShape:
    """Return the shape of a convolution with gaps: it reaches back to its last tap."""
    return replace(convolution(module), kernel=module.short_conv_state_len + 1)
