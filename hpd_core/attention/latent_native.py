"""Attention to keys and values made of latents, by the kernel in C++.

They are recomputed for each layer and step, in memory that all layers of a step use in turn. It is worth it if many
rows see them (attention/latent.py decides): then the kernel is faster than torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hpd_core.attention.kv_cache import CacheBlock, CacheOrder, CacheShape, LayerShape
from hpd_core.attention.native import NativeAttention
from hpd_core.attention.plan import AttentionPlan, PrefixCache
from hpd_core.native import library

ExpandKept = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Expansion of cached latents, [n, 1, C, r + d], to keys [n, H, C, n + d] and values [n, H, C, v]."""


class ExpandedAttention:
    """Attention of one cohort's tokens of one step."""

    def __init__(self, plan: AttentionPlan, layer: LayerShape) -> None:
        """Allocate keys and values. `layer`: number of their heads, and their sizes."""
        self._plan = plan
        dtype = plan.keys[0].dtype
        block = library.columns_of_block(dtype, layer.key_size, layer.value_size)
        self._order = CacheOrder(block, fills=False)
        self._shape = CacheShape((layer,), dtype, plan.keys[0].device, (0,))
        self._own = self._block(len(plan.counts), plan.k_positions.shape[1])
        prefixes = {id(part.prefix): part.prefix for part in plan.groups if part.prefix is not None}
        self._prefixes = [(prefix, self._block(1, prefix.num_tokens)) for prefix in prefixes.values()]
        made = {id(prefix): _as_prefix(block, prefix.num_tokens) for prefix, block in self._prefixes}
        groups = [part if part.prefix is None else replace(part, prefix=made[id(part.prefix)]) for part in plan.groups]
        self._attention = NativeAttention(replace(plan, keys=self._own.keys, values=self._own.values, groups=groups))

    def _block(self, num_prompts: int, num_columns: int) -> CacheBlock:
        room = self._order.room_for(num_columns)
        memory = torch.empty(num_prompts * room * self._shape.numbers_per_token, dtype=self._shape.dtype)
        return CacheBlock(self._shape, self._order, memory, num_prompts, room)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, out: Tensor, expand: ExpandKept, settings: dict[str, Any]
    ) -> None:
        """Attend as `LatentAttention.attend` does; the latents of the new tokens are stored already."""
        plan = self._plan
        earlier = int((plan.used - plan.counts).max())
        if earlier:
            self._fill(self._own, plan.keys[layer][:, :, :earlier], expand)
        for prefix, block in self._prefixes:
            self._fill(block, prefix.keys[layer][None], expand)
        tokens = slice(plan.start, plan.stop)
        new_keys, new_values = (made[0].transpose(0, 1) for made in expand(k[tokens].transpose(0, 1)[None]))
        self._attention.attend(0, q[tokens], new_keys, new_values, out[tokens], **settings)

    def _fill(self, block: CacheBlock, kept: Tensor, expand: ExpandKept) -> None:
        """Fill the first columns of all prompts from latents [P, 1, C, r + d]; the kernel reads whole value blocks."""
        keys, values = expand(kept)
        num_columns, places = kept.shape[2], self._order.places_of(kept.shape[2])
        block.keys[0][:, :, :num_columns] = keys
        size = block.values[0].shape[-1]
        padded = torch.nn.functional.pad(values, (0, 0, 0, places * size - num_columns))
        block.values[0][:, :, :places] = padded.view(*padded.shape[:2], places, size, -1).transpose(3, 4)


def _as_prefix(block: CacheBlock, num_tokens: int) -> PrefixCache:
    return PrefixCache([block.keys[0][0, :, :num_tokens]], [block.values[0][0]])
