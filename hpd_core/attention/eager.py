"""Attention by torch, `eager`: plain matrix products, which take softcap, sinks and a prefix that prompts share."""

from __future__ import annotations

import torch
from torch import Tensor


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
) -> Tensor:
    """Attend by matrix products, with logit softcap (Gemma 2), sinks (gpt-oss) and a prefix shared by all prompts.

    Args:
        q: [P, H_kv, M, D], M folded query rows; k, v: [P, H_kv, C, D]; bias: [P, 1, M, C].
        prefix: keys and values, [H_kv, L, D] each; prefix_bias: [P, 1, M, L] or None.

    Returns:
        [P, H_kv, M, D_v]
    """
    num_prompts, num_kv_heads, num_rows, _ = q.shape
    shared = prefix[0].shape[1] if prefix else 0
    flat = num_prompts * num_kv_heads
    precision = torch.promote_types(q.dtype, torch.float32)
    scores = q.new_empty(num_prompts, num_kv_heads, num_rows, shared + k.shape[2], dtype=precision)
    write_products(q.reshape(flat, num_rows, -1), k.reshape(flat, *k.shape[2:]), scores[..., shared:])
    if prefix:
        by_head = q.transpose(0, 1).reshape(num_kv_heads, num_prompts * num_rows, -1)
        write_products(by_head, prefix[0], scores[..., :shared].transpose(0, 1))
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
