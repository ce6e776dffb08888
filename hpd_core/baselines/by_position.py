"""Patches for the oracle of `stacked`: families that count tokens in memory are made to count positions instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import DynamicCache

_ALIBI = ("build_alibi_tensor", "build_mpt_alibi_tensor")
"""Functions of BLOOM, Falcon and MPT that make a bias for each token in memory."""


@contextmanager
def counting_positions(model: Any, positions: Sequence[int]) -> Iterator[None]:
    """Make one forward count these positions, in models that ignore `position_ids`."""
    at = torch.tensor(positions)
    module = sys.modules[type(model).__module__]
    with ExitStack() as stack:
        for name in _ALIBI:
            if hasattr(module, name):
                stack.enter_context(patch.object(module, name, _by_position(getattr(module, name), at)))
        for part in model.modules():
            # GPT Neo: which tokens see which, [1, 1, positions, positions].
            bias = part._buffers.get("bias")
            if bias is not None and bias.dim() == 4:
                stack.enter_context(patch.dict(part._buffers, bias=bias[:, :, at][..., at]))
            if hasattr(part, "build_block_mask"):  # MiniMax M3 picks blocks of memory: all, as far as it is decoded
                stack.enter_context(patch.object(part, "forward", lambda *_: None))
                stack.enter_context(patch.object(part, "build_block_mask", lambda _picked, mask, *_: mask))
            if getattr(part, "attn_temperature_tuning", False):  # Llama 4: behind how many tokens the row comes
                stack.callback(part.register_forward_pre_hook(_behind(at), with_kwargs=True).remove)
        yield


@contextmanager
def hiding(model: Any, mask: Any) -> Iterator[Any]:
    """Yield the `attention_mask` argument for one forward.

    GPT takes only a padding mask: its layers' own masks, [1, 1, T, T], are replaced.
    """
    if model.config.model_type != "openai-gpt":
        yield mask
        return
    with ExitStack() as stack:
        for part in model.modules():
            if "bias" in part._buffers:
                stack.enter_context(patch.dict(part._buffers, bias=(mask == 0).to(mask.dtype)))
        yield None


def _behind(at: Tensor) -> Callable[[Any, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]:
    class Cache(DynamicCache):  # type: ignore[misc]
        def get_seq_length(self, *_: Any) -> Tensor:
            return at - torch.arange(len(at))

    def hook(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "past_key_values": Cache()}

    return hook


def _by_position(build: Callable[..., Tensor], at: Tensor) -> Callable[..., Tensor]:
    def biases(mask_or_heads: Tensor | int, *args: Any, **kwargs: Any) -> Tensor:
        of_all = torch.ones(1, int(at.max()) + 1) if isinstance(mask_or_heads, Tensor) else mask_or_heads
        return build(of_all, *args, **kwargs)[..., at]

    return biases
