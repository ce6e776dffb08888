"""Attention by torch: plain matrix products, `eager`, which take softcap, sinks and a prefix that prompts share; and
torch's fused kernel, `sdpa`, which takes no shared prefix.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def eager_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    scale: float,
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    prefix: tuple[Tensor, Tensor] | None = None,
    prefix_bias: Tensor | None = None,
    exact_scores: bool = False,
) -> Tensor:
    """Attend by matrix products, with logit softcap (Gemma 2), sinks (gpt-oss) and a prefix shared by all prompts.

    Args:
        q: [P, H_kv, M, D], M folded query rows; k, v: [P, H_kv, C, D]; bias: [P, 1, M, C].
        prefix: keys and values, [H_kv, L, D] each; prefix_bias: [P, 1, M, L] or None.
        exact_scores: whether to compute scores in fp32, because they are large compared to their differences.

    Returns:
        [P, H_kv, M, D_v]
    """
    num_prompts, num_kv_heads, num_rows, _ = q.shape
    shared = prefix[0].shape[1] if prefix else 0
    flat = num_prompts * num_kv_heads
    scores = q.new_empty(num_prompts, num_kv_heads, num_rows, shared + k.shape[2], dtype=torch.float32)
    if exact_scores:
        q, k = q.float(), k.float()
    write_products(q.reshape(flat, num_rows, -1), k.reshape(flat, *k.shape[2:]), scores[..., shared:])
    if prefix:
        by_head = q.transpose(0, 1).reshape(num_kv_heads, num_prompts * num_rows, -1)
        write_products(by_head, prefix[0].to(q.dtype), scores[..., :shared].transpose(0, 1))
    scores.mul_(scale)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores[..., shared:].add_(bias)
    if prefix_bias is not None:
        scores[..., :shared].add_(prefix_bias)
    if sinks is not None:
        # gpt-oss: one learned logit per head takes part in the softmax and has no value.
        group = sinks.numel() // num_kv_heads
        sink = sinks.float().view(1, num_kv_heads, 1, group).expand(num_prompts, -1, num_rows // group, -1)
        scores = torch.cat([scores, sink.reshape(num_prompts, num_kv_heads, num_rows, 1)], dim=-1)
    weights = scores.softmax(dim=-1).to(v.dtype).flatten(0, 1)  # [P * H_kv, M, L + C (+ 1)]
    own, own_values = weights[..., shared : shared + k.shape[2]], v.reshape(flat, *v.shape[2:])
    if not prefix:
        return torch.bmm(own, own_values).view(*q.shape[:3], -1)
    by_head = weights[..., :shared].view(*q.shape[:3], shared).transpose(0, 1).reshape(num_kv_heads, -1, shared)
    attended = torch.bmm(by_head, prefix[1]).view(num_kv_heads, num_prompts, num_rows, -1).transpose(0, 1)
    return torch.baddbmm(attended.reshape(flat, num_rows, -1), own, own_values).view(*q.shape[:3], -1)


def write_products(q: Tensor, k: Tensor, out: Tensor) -> None:
    """Write unscaled scores, q [B, M, D] times k [B, N, D], into `out`, fp32 of B * M * N elements."""
    # A transposed slice of a larger block would be copied element by element, three times slower than the product.
    out.copy_(torch.bmm(q, k.contiguous().transpose(1, 2)).view(out.shape))


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
