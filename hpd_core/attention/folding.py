"""Folding of heads and rows into one matrix: a prompt's KV is read once for all branches and heads of a KV head."""

from __future__ import annotations

from torch import Tensor


def fold(rows: Tensor, num_prompts: int, num_kv_heads: int) -> Tensor:
    """Fold rows of one prompt, and heads of one KV head, into one matrix: [P * R, H, D] -> [P, H_kv, R * G, D]."""
    num_rows = rows.shape[0] // num_prompts
    group = rows.shape[1] // num_kv_heads
    split = rows.view(num_prompts, num_rows, num_kv_heads, group, -1)
    return split.transpose(1, 2).reshape(num_prompts, num_kv_heads, num_rows * group, -1)


def unfold(folded: Tensor, num_heads: int) -> Tensor:
    """Invert `fold`: [P, H_kv, R * G, D_v] -> [P * R, H, D_v]."""
    num_prompts, num_kv_heads, _, size = folded.shape
    group = num_heads // num_kv_heads
    split = folded.view(num_prompts, num_kv_heads, -1, group, size)
    return split.transpose(1, 2).reshape(-1, num_heads, size)
