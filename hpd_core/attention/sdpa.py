"""Attention by torch's fused kernel: `sdpa`. It takes no shared prefix."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def fused_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which `sdpa_attention` uses those of torch's kernels that suit packed rows.

    It is entered for a whole forward. cuDNN's kernel, which torch prefers on Hopper, is planned on the host for every
    new shape, and nearly every step has one. Flash attention takes no mask, except on a CPU.
    """
    if device.type != "cuda":
        return nullcontext()
    allowed: AbstractContextManager[None] = sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return allowed


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, **_: Any) -> Tensor:
    """Attend by torch's fused kernel. q: [P, H_kv, R * G, D]; k, v: [P, H_kv, C, D]; bias: [P, 1, R * G, C]."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
