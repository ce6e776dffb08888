"""Qwen 4's additions to layers beside attention: features of a token and the few before it, mixed by a convolution with
gaps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.mixers.convolution import packed_convolution, tokens_before
from hpd_core.mixers.running import LayerStep


def packed_ngrams(step: LayerStep, module: Any, input_ids: Tensor, *_: Any) -> Tensor:
    """Replace the forward of `Qwen4ExpTextNGramEmbedding`: ids [1, T] to features [1, T, embedding size].

    Positions before a text count as end-of-text tokens. Ids are stored less the end's id, so that empty memory (0) is
    it.
    """
    end = module.eos_token_id
    ids = (input_ids[0] - end)[:, None]
    before: Tensor = step.call(tokens_before, ids, module.context_len)
    windows = torch.cat([before[..., 0].flip(1), ids], dim=1) + end
    found: Tensor = type(module).forward(module, windows, None)  # as if each were a text of its own
    return found[None, :, -1]


def packed_gaps(step: LayerStep, module: Any, hidden_states: Tensor, *_: Any) -> Tensor:
    """Replace the method `_short_conv` of `Qwen4ExpTextPLELayer`: [1, T, channels] to the same."""
    weight = module.conv1d.weight[:, 0]
    taps = weight.new_zeros(len(weight), module.short_conv_state_len + 1)
    taps[:, :: module.conv1d.dilation[0]] = weight
    mixed: Tensor = step.call(packed_convolution, None, hidden_states.transpose(1, 2), taps, activation="silu")
    return mixed.transpose(1, 2)
