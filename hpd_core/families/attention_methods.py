"""Query scaling of Llama 4: queries of layers without rotary embeddings are scaled by a token's place in the row.

A packed row holds many texts. So while our decoder or our training runs the model, these layers learn each token's
position from the value that they ask a cache for: the number of tokens before the row.

Models in which an indexer picks a limited number of tokens, or of blocks of them, that each token attends to.

While no token sees more than that, all are picked, and attention is like any other: the indexer is skipped while our
decoder runs the model. Longer texts are refused, as those beyond a model's context are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import MethodType
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


def steer_query_scales(model: Any) -> None:
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


_EVERYTHING = {
    "Qwen4ExpTextQSAIndexer": torch.ones(1, 1, 1, 1, dtype=torch.bool),
    "Glm5NextTextIndexer": torch.zeros(1, 0, 0, dtype=torch.int32),
}
"""Placeholder output by class of indexer, for runs that ignore it; other classes return no indices."""


def steer_sparse(model: Any) -> None:
    """Skip the model's indexers while our decoder runs it."""
    for module in model.modules():
        indexer = getattr(module, "indexer", None)
        if isinstance(indexer, torch.nn.Module) and "forward" not in indexer.__dict__:
            indexer.forward = MethodType(_without_picking(type(indexer), model.device), indexer)
            mask = torch.zeros(1, 1, 1, 1, device=model.device)
            module.register_forward_pre_hook(functools.partial(_with_own_mask, mask), with_kwargs=True)


def _without_picking(kind: Any, device: torch.device) -> Any:
    own = kind.forward
    everything = _EVERYTHING.get(kind.__name__, torch.zeros(0, dtype=torch.int32)).to(device)

    @functools.wraps(own)
    def forward(indexer: Any, *args: Any, **kwargs: Any) -> Tensor:
        is_ours = current_batch() is not None
        picked: Tensor = everything if is_ours else own(indexer, *args, **kwargs)
        return picked

    return forward


def _with_own_mask(mask: Tensor, _module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Pass a mask while our decoder runs: the modules need one to slice for their indexers, or to join with their
    picks.
    """
    return None if current_batch() is None else (args, {**kwargs, "attention_mask": mask})
