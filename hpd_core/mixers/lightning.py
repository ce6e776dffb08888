"""Lightning attention (MiniMax): queries, keys and values whose state decays by one number per head for any token.

It is Mamba 2's scan (selective_scan.py) with steps of length 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.mixers.running import LayerStep
from hpd_core.mixers.selective_scan import packed_scan


def packed_lightning(step: LayerStep, module: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    """Replace the forward of `MiniMaxLightningAttention`: [1, T, hidden size] to the same."""
    from transformers.models.mamba2 import modeling_mamba2  # no other model needs it

    scan = modeling_mamba2.mamba2_chunk_scan
    mixed = module.act_fn(module.qkv_proj(hidden_states))
    q, k, v = mixed.unflatten(2, (module.num_attention_heads, -1)).split(module.head_dim, dim=3)
    said = step.call(
        packed_scan,
        getattr(scan, "hpd_original", scan),
        v,
        torch.ones_like(v[..., 0]),
        -module.slope_rate.flatten(),
        k,
        q,
        chunk_size=module.block_size,
    )
    normed = module.norm(said.to(v.dtype).flatten(2))
    return module.out_proj(torch.sigmoid(module.output_gate(hidden_states)) * normed), None
