"""Compressed convolutional attention (ZAYA): queries and keys are mixed with those of the tokens before them, and half
of each value is made of the token before it. What follows is attention like any other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.mixers.convolution import tokens_before
from hpd_core.mixers.running import LayerStep


def packed_projection(
    step: LayerStep, module: Any, hidden_states: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """In place of the forward of `ZayaCCAProjection`.

    Args:
        hidden_states: [1, T, hidden size]

    Returns:
        Queries, keys and values, [1, T, heads, head size] each.
    """
    x, group = hidden_states[0], module.num_key_value_groups

    def heads(tokens: Tensor) -> Tensor:
        return tokens.view(len(tokens), -1, module.head_dim)

    queries, keys = module.q_proj(x), module.k_proj(x)
    # In front of a text there are zeros, of which the projection leaves its bias.
    bias = 0 if module.v_proj_delayed.bias is None else module.v_proj_delayed.bias
    mixed = torch.cat([queries, keys], dim=1)
    count = max(1, module.conv_kernel_size)
    before = step.call(tokens_before, torch.cat([mixed, module.v_proj_delayed(x) - bias], dim=1), count)
    mixed_before, delayed = before[:, : module.conv_kernel_size, : mixed.shape[1]], before[:, 0, mixed.shape[1] :]
    window = torch.cat([mixed_before.flip(1), mixed[:, None]], dim=1).transpose(1, 2)  # [T, channels, tokens]
    found = module.conv_qk_grouped(module.conv_qk_depthwise(window))[..., 0]
    query_rest = (heads(queries) + heads(keys).repeat_interleave(group, dim=1)) * 0.5
    key_rest = query_rest.view(len(x), -1, group, module.head_dim).mean(dim=2)
    query, key = torch.split(found, [queries.shape[1], keys.shape[1]], dim=1)
    value = torch.cat([module.v_proj_current(x), delayed + bias], dim=1)
    return (heads(query) + query_rest)[None], (heads(key) + key_rest)[None], heads(value)[None]
