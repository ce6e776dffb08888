"""Models with multi-head latent attention: made to hand us latents, which are kept in place of keys and values.

In all families of transformers that have it, an attention module has a method of its own, `expand_kv`. It makes keys
and values from latents as the last thing before attention. While our decoder runs the model with a cache of latents,
the method passes them on unchanged (attention/latent.py).
"""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from hpd_core.attention.dispatch import current_batch
from hpd_core.layers.packed_linears import is_waited_for


def steer(model: Any) -> None:
    """Make the model's attention modules pass on latents while our decoder asks for them."""
    for module in model.modules():
        if type(module).__module__.startswith("transformers.models.") and hasattr(type(module), "expand_kv"):
            module.expand_kv = MethodType(_handing_on(type(module)), module)


def _handing_on(kind: Any) -> Any:
    own = kind.expand_kv

    @functools.wraps(own)
    def expand_kv(module: Any, latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        """Concatenate latents [1, 1, T, r] and rotated parts [1, 1, T, d] of keys; return that, and values of size
        0.
        """
        batch = current_batch()
        if batch is not None and batch.keeps_latents and _is_matrix(module.kv_b_proj):
            return torch.cat([latents, rotated], dim=3), latents[..., :0]
        expanded: tuple[Tensor, Tensor] = own(module, latents, rotated)
        return expanded

    return expand_kv


def _is_matrix(layer: Any) -> bool:
    """Return whether a layer is a product with its weight and nothing else. An 8-bit layer rounds its inputs, so that
    multiplying the query with its weight would give another result.
    """
    return type(layer) is torch.nn.Linear and layer.bias is None and not is_waited_for(layer)
