"""Attention over packed rows: the function that transformers calls in place of its own.

The model runs over one packed row of tokens, [1, T]; it knows nothing of prompts. For every layer it calls
`packed_attention` with that row's queries, keys and values. The `PackedBatch` that travels along says which
stretch of the row belongs to which cohort; each cohort stores its keys and values and attends on its own.

A prompt's KV is read once for all its tokens: the query rows of all its branches, and of all query heads that
share a KV head (GQA), are folded into one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.layout import visible

ATTENTION_NAME = "hpd_packed"
"""The name under which the function is registered with transformers."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Where one cohort's tokens of this step go. Built once per step, used by every layer.

    P prompts, R rows (the most tokens that a prompt has in this step), C columns of KV in use, t tokens.

    Attributes:
        start, stop: the cohort's stretch of the packed row; t = stop - start.
        rows: int64 [P * R], the token of each query row; padding rows repeat token 0.
        unrows: int64 [t], the query row of each token.
        kv_prompts, kv_columns: int64 [t], where each token's key and value are stored.
        q_scopes, q_positions: int64 [P, R]; padding rows are public and at position 0, so that they see something.
        k_scopes, k_positions: int64 [P, C]; columns not in use have a position that nobody sees.
        keys, values: one tensor per layer, [P, H_kv, capacity, D].
    """

    start: int
    stop: int
    rows: Tensor
    unrows: Tensor
    kv_prompts: Tensor
    kv_columns: Tensor
    q_scopes: Tensor
    q_positions: Tensor
    k_scopes: Tensor
    k_positions: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    _biases: dict[tuple[int | None, int, torch.dtype], Tensor] = field(default_factory=dict)

    def bias(self, window: int | None, group: int, dtype: torch.dtype) -> Tensor:
        """The additive mask [P, 1, R * G, C] for folded query rows; equal layers share it."""
        key = (window, group, dtype)
        if key not in self._biases:
            seen = visible(
                self.q_scopes[:, :, None],
                self.q_positions[:, :, None],
                self.k_scopes[:, None, :],
                self.k_positions[:, None, :],
                window,
            )
            # Finite, so that a stretch in which nothing is visible does not become NaN inside the kernel.
            bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
            bias.masked_fill_(~seen, torch.finfo(dtype).min / 2)
            self._biases[key] = bias.repeat_interleave(group, dim=1)[:, None]
        return self._biases[key]


@dataclass(slots=True)
class PackedBatch:
    """What `packed_attention` needs to know about the packed row of one forward."""

    plans: Sequence[AttentionPlan]
    eager: bool = False
    num_calls: int = 0


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    hpd_batch: PackedBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer (transformers' AttentionInterface).

    Args:
        query: [1, H, T, D]; key, value: [1, H_kv, T, D] and [1, H_kv, T, D_v].
        hpd_batch: passed to the model's forward as a keyword.
        sliding_window, softcap, s_aux: what the model family needs (Mistral; Gemma 2; gpt-oss sinks).

    Returns:
        [1, T, H, D_v] and None for the attention weights.
    """
    layer: int = module.layer_idx  # type: ignore[assignment]
    hpd_batch.num_calls += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)  # [T, H, D]
    out = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
    eager = hpd_batch.eager or softcap is not None or s_aux is not None
    for plan in hpd_batch.plans:
        span = slice(plan.start, plan.stop)
        keys, values = plan.keys[layer], plan.values[layer]
        keys[plan.kv_prompts, :, plan.kv_columns] = k[span]
        values[plan.kv_prompts, :, plan.kv_columns] = v[span]
        num_prompts, num_columns = plan.k_positions.shape
        keys, values = keys[:, :, :num_columns], values[:, :, :num_columns]
        bias = plan.bias(sliding_window, q.shape[1] // keys.shape[1], q.dtype)
        folded = fold(q[span][plan.rows], num_prompts, keys.shape[1])
        attend: Callable[..., Tensor] = eager_attention if eager else sdpa_attention
        attended = attend(folded, keys, values, bias, scale, softcap=softcap, sinks=s_aux)
        out[span] = unfold(attended, q.shape[1])[plan.unrows]
    return out[None], None


def fold(rows: Tensor, num_prompts: int, num_kv_heads: int) -> Tensor:
    """[P * R, H, D] -> [P, H_kv, R * G, D]: rows of one prompt, and heads of one KV head, in one matrix."""
    num_rows = rows.shape[0] // num_prompts
    group = rows.shape[1] // num_kv_heads
    split = rows.view(num_prompts, num_rows, num_kv_heads, group, -1)
    return split.transpose(1, 2).reshape(num_prompts, num_kv_heads, num_rows * group, -1)


def unfold(folded: Tensor, num_heads: int) -> Tensor:
    """[P, H_kv, R * G, D_v] -> [P * R, H, D_v], the inverse of `fold`."""
    num_prompts, num_kv_heads, _, size = folded.shape
    group = num_heads // num_kv_heads
    split = folded.view(num_prompts, num_kv_heads, -1, group, size)
    return split.transpose(1, 2).reshape(-1, num_heads, size)


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, **_: Any) -> Tensor:
    """torch's fused attention. q: [P, H_kv, R * G, D]; k, v: [P, H_kv, C, D]; bias: [P, 1, R * G, C]."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def eager_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    scale: float,
    *,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """The same step by step, with logit softcap (Gemma 2) and sinks (gpt-oss)."""
    scores = torch.matmul(q, k.transpose(2, 3)).float() * scale  # [P, H_kv, R * G, C]
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + bias
    if sinks is None:
        return torch.matmul(scores.softmax(dim=-1).to(v.dtype), v)
    # gpt-oss: one learned logit per head takes part in the softmax and gives nothing.
    num_prompts, num_kv_heads, num_rows, _ = scores.shape
    group = sinks.numel() // num_kv_heads
    sink = sinks.float().view(1, num_kv_heads, 1, group).expand(num_prompts, -1, num_rows // group, -1)
    scores = torch.cat([scores, sink.reshape(num_prompts, num_kv_heads, num_rows, 1)], dim=-1)
    return torch.matmul(scores.softmax(dim=-1)[..., :-1].to(v.dtype), v)
