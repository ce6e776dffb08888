"""Query scaling of Llama 4: queries of layers without rotary embeddings are scaled by a token's place in the row.

A packed row holds many texts. So while our decoder or our training runs the model, these layers learn each token's
position from the value that they ask a cache for: the number of tokens before the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hpd_core.attention.dispatch import current_batch


@dataclass(frozen=True, slots=True)
class _Before:
    """Stand-in for transformers' cache: the offset from each token's place in the row to its position, int64 [T]."""

    distances: Tensor

    def get_seq_length(self, _layer: int) -> Tensor:
        return self.distances

    def update(self, keys: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        return keys, values


def steer(model: Any) -> None:
    """Make the layers count positions while a packed row goes through the model."""
    for module in model.modules():
        is_scaled = getattr(module, "attn_temperature_tuning", False) and not getattr(module, "use_rope", True)
        if is_scaled and _with_positions not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_with_positions, with_kwargs=True)


def _with_positions(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    batch = kwargs.get("hpd_training") or current_batch()
    if batch is None:
        return None
    assert batch.positions is not None
    positions = batch.positions.flatten()
    before = _Before(positions - torch.arange(len(positions), device=positions.device))
    return args, {**kwargs, "past_key_values": before}
