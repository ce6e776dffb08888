"""Causal depthwise convolution over packed rows: each token looks at those before it in its own text.

Qwen 4's additions to layers beside attention: features of a token and the few before it, mixed by a convolution with
gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.activations import ACT2FN

from hpd_core.mixers.running import LayerStep, Step

_ROWS_AT_ONCE = 128
"""Tokens per part on the CPU, so that their channels stay in its cache from one tap to the next."""


def packed_convolution(
    step: Step,
    _original: Any,
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **_: Any,
) -> Tensor:
    """Replace transformers' `causal_conv1d_fn`.

    Args:
        hidden_states: [1, channels, T]; weight: [channels, kernel].

    Returns:
        Output in the shape and dtype of `hidden_states`.
    """
    out: Tensor = step.call(convolved, hidden_states[0].transpose(0, 1), weight, bias)
    if activation is not None:
        out = ACT2FN[activation](out)
    return out.to(hidden_states.dtype).transpose(0, 1)[None]


def convolved(step: LayerStep, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve [T, channels] to the same shape, in fp32 or wider: half precision is rounded once, as in
    transformers.
    """
    x, wide = x.contiguous(), torch.promote_types(x.dtype, torch.float32)
    taps = weight.to(wide).flip(1).t()  # [kernel, channels]: of the token itself, of the one before it, ...
    out = x.to(wide) * taps[0]
    if bias is not None:
        out += bias
    for source, windows, rows in _sources(step, x):
        _add_windows(out, taps, source, windows, rows)
    return out


def tokens_before(step: LayerStep, x: Tensor, count: int) -> Tensor:
    """Return the `count` tokens before each token, nearest first: [T, channels] -> [T, count, channels]."""
    out = x.new_empty(len(x), count, x.shape[1])
    for source, windows, rows in _sources(step, x):
        out[rows] = source[windows[:, :count]].to(out.dtype)
    return out


def _sources(step: LayerStep, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Store the inputs that later tokens look back at. Yield, for each group of tokens `rows`, their source and their
    `windows` [t, W] into it, nearest first.
    """
    for plan in step.plans:
        inputs = plan.cache.layers[step.layer].columns["inputs"]
        x = x.to(inputs.dtype)  # of the weights, which some families keep in fp32
        if (trunk := plan.trunk) is not None:
            width = trunk.windows.shape[1]
            before = inputs[:, :width].index_select(0, trunk.prompts).flatten(0, 1)
            source = torch.cat([before, x.index_select(0, trunk.rows)])
            inputs[trunk.prompts, :width] = source.index_select(0, trunk.tails).view(-1, width, source.shape[1])
            yield source, trunk.windows, trunk.rows
        if (branches := plan.branches) is not None:
            inputs[branches.prompts, branches.columns] = x.index_select(0, branches.rows)
            yield inputs.flatten(0, 1), branches.ancestors, branches.rows
    step.has_convolved = True


def _add_windows(out: Tensor, taps: Tensor, source: Tensor, windows: Tensor, rows: Tensor) -> None:
    """Add to the tokens `rows` the weighted tokens before them: `windows` [t, W] into `source`, nearest first."""
    at_once = _ROWS_AT_ONCE if out.device.type == "cpu" else max(1, len(rows))
    for part in (slice(first, first + at_once) for first in range(0, len(rows), at_once)):
        heard = out.new_zeros(len(rows[part]), out.shape[1])
        for tap, before in zip(taps[1:], windows[part].unbind(1), strict=False):  # W is the widest layer's
            heard.addcmul_(source.index_select(0, before), tap)
        out.index_add_(0, rows[part], heard)


def packed_ngrams(step: Step, module: Any, input_ids: Tensor, *_: Any) -> Tensor:
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


def packed_gaps(step: Step, module: Any, hidden_states: Tensor, *_: Any) -> Tensor:
    """Replace the method `_short_conv` of `Qwen4ExpTextPLELayer`: [1, T, channels] to the same."""
    weight = module.conv1d.weight[:, 0]
    taps = weight.new_zeros(len(weight), module.short_conv_state_len + 1)
    taps[:, :: module.conv1d.dilation[0]] = weight
    return packed_convolution(step, None, hidden_states.transpose(1, 2), taps, activation="silu").transpose(1, 2)
