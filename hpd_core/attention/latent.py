"""Attention in layers that keep one latent per token, and no keys and values (multi-head latent attention, DeepSeek-V2,
arXiv:2405.04434): several times less memory to hold and to read.

Keys and values of all heads are linear in the latent c; in addition, all heads share one rotated part of a key:

    score = q_nope (U_K c) + q_rope k_rope      answer = U_V of the values = sum of weights times (U_V c)

Two forms give the same result. `expanded` makes keys and values of c as the model's own code does. `absorbed` applies
U_K to the query and U_V after the sum. So all heads attend to c itself, as to one KV head whose values are the first
part of its keys. The form with fewer multiplications is chosen separately for a prefix and for a prompt's own columns;
one softmax covers both.

A head has R query rows that attend to C columns. Sizes are r (latent), n, d and v (a head's plain part, rotated part
and value):

    expanded    C r (n + v)  +  R C (n + d + v)      each column becomes a key and a value
    absorbed    R r (n + v)  +  R C (2 r + d)        each row meets the latents

So a few rows that see many columns are absorbed (values that grow), and many rows expanded (documents, and a prefix
that many prompts share): with DeepSeek's sizes up to 140 rows are absorbed before 800 columns.

Expanded keys and values are recomputed for each layer and step, in memory that all layers of a step use in turn. If
many rows see them, the kernel in C++ attends to them: then it is faster than torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from hpd_core.attention.eager import write_products
from hpd_core.attention.kv_cache import CacheBlock, CacheOrder, CacheShape, LayerShape
from hpd_core.attention.native import NativeAttention
from hpd_core.attention.plan import AttentionPlan, PrefixCache, Tile
from hpd_core.native import library

Expand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Expansion of latents [n, 1, C, r] and rotated parts [n, 1, C, d] to keys [n, H, C, n + d], values [n, H, C, v]."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive tiles of the same prompts, which attend to the first `num_columns` own columns."""

    prompts: slice
    num_columns: int
    is_absorbed: bool
    tiles: Sequence[Tile]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Tokens that attend to the same prefix, or to none.

    Attributes:
        tokens: their range in the packed row; tokens of tiles are counted from its first.
        heads_at_once: number of heads that a tile computes at once.
    """

    tokens: slice
    heads_at_once: int
    prefix: PrefixCache | None
    absorbs_prefix: bool
    runs: Sequence[_Run]

    @property
    def absorbs(self) -> bool:
        """Whether anything is absorbed."""
        return self.absorbs_prefix or any(run.is_absorbed for run in self.runs)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns that rows attend to, in one of the two forms.

    Attributes:
        keys, values: [n, H, C, n + d] and [n, H, C, v], expanded; [n, 1, C, r + d] and [n, 1, C, r], absorbed. n is
            the number of prompts, or 1 if all see the same.
    """

    keys: Tensor
    values: Tensor
    is_absorbed: bool

    def part(self, num_columns: int, heads: slice) -> _Columns:
        """Return the first columns, for some of the heads."""
        heads = slice(None) if self.is_absorbed else heads
        return replace(self, keys=self.keys[:, heads, :num_columns], values=self.values[:, heads, :num_columns])

    def write_scores(self, q: Tensor, out: Tensor) -> None:
        """Write unscaled scores of q [n, H, R, D] into `out` [n, H, R, C]."""
        if self._is_by_head(q):
            q, out = q.transpose(0, 1), out.transpose(0, 1)
        write_products(q.reshape(self._batch, -1, q.shape[3]), self.keys.flatten(0, 1), out)

    def sums(self, weights: Tensor) -> Tensor:
        """Return weights [n, H, R, C] times values, [n, H, R, ...]."""
        by_head = self._is_by_head(weights)
        rows = weights.transpose(0, 1) if by_head else weights
        found = torch.bmm(rows.reshape(self._batch, -1, rows.shape[3]), self.values.flatten(0, 1))
        found = found.view(*rows.shape[:3], -1)
        return found.transpose(0, 1) if by_head else found

    @property
    def _batch(self) -> int:
        return self.keys.shape[0] * self.keys.shape[1]

    def _is_by_head(self, rows: Tensor) -> bool:
        """Return whether all prompts' rows of a head are one matrix."""
        return not self.is_absorbed and len(self.keys) < len(rows)


class LatentAttention:
    """Attention of one cohort's tokens of one step, layer by layer."""

    def __init__(self, plan: AttentionPlan, *, by_kernel: bool = False) -> None:
        """Prepare for a plan. `by_kernel`: use the kernel in C++ in steps with mostly expanded keys."""
        self._plan, self._by_kernel = plan, by_kernel
        self._expanded: dict[LatentSizes, ExpandedAttention] = {}
        self._stretches: dict[tuple[int | None, LatentSizes], list[_Stretch]] = {}

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        out: Tensor,
        of: LatentLayer,
        window: int | None = None,
    ) -> None:
        """Store the latents of the new tokens, and attend for them.

        Args:
            q: [T, H, n + d]; k: [T, 1, r + d], latents followed by rotated parts: of the whole packed row.
            out: [T, H, v]; the cohort's stretch of it is written.
            window: as in `packed_attention`.
        """
        plan, keys = self._plan, self._plan.keys[layer]
        keys[plan.kv_prompts, :, plan.kv_columns] = k[plan.start : plan.stop]
        if self._by_kernel and self._expands(of.sizes):
            settings = {"scale": of.scale, "window": window, "softcap": of.softcap, "sinks": of.sinks}
            self._attention(of.sizes).attend(layer, q, k, out, of.expanded, settings)
            return
        for stretch in self._cut(window, of.sizes):
            tokens, prefix = stretch.tokens, None
            if stretch.prefix is not None:
                prefix = of.columns(stretch.prefix.keys[layer][None], stretch.absorbs_prefix)
            of.attend(stretch, q[tokens], out[tokens], keys, prefix)

    def _cut(self, window: int | None, sizes: LatentSizes) -> list[_Stretch]:
        """Cut the tokens into stretches; equal layers share the result."""
        key = (window, sizes)
        if key not in self._stretches:
            # A tile then fits as many rows of a head as possible.
            at_once = 1 if self._plan.q_sights.device.type == "cpu" and self._expands(sizes) else sizes.heads
            tiles = self._plan.tiles(window, 1, at_once)
            by_prefix = groupby(tiles, key=lambda tile: None if tile.prefix is None else id(tile.prefix))
            self._stretches[key] = [_stretch(list(same), sizes, at_once) for _, same in by_prefix]
        return self._stretches[key]

    def _expands(self, sizes: LatentSizes) -> bool:
        """Return whether most scores are those of expanded keys."""
        scores = {True: 0, False: 0}
        for num_rows, num_columns in zip(self._plan.counts.tolist(), self._plan.used.tolist(), strict=True):
            scores[sizes.is_absorbed(num_rows, num_columns)] += num_rows * num_columns
        return scores[False] > scores[True]

    def _attention(self, sizes: LatentSizes) -> ExpandedAttention:
        """Return the kernel's attention for these sizes; equal layers share it."""
        if sizes not in self._expanded:
            self._expanded[sizes] = ExpandedAttention(self._plan, sizes.expanded)
        return self._expanded[sizes]


def _stretch(tiles: Sequence[Tile], sizes: LatentSizes, heads_at_once: int) -> _Stretch:
    prefix, tokens = tiles[0].prefix, slice(tiles[0].tokens.start, tiles[-1].tokens.stop)
    absorbs_prefix = prefix is not None and sizes.is_absorbed(tokens.stop - tokens.start, prefix.num_tokens)
    runs = []
    for _, same in groupby(tiles, key=lambda tile: tile.prompts.start):
        moved = [replace(tile, tokens=_moved(tile.tokens, -tokens.start)) for tile in same]
        num_columns = max(tile.columns.stop for tile in moved)
        prompts = moved[0].prompts
        num_tokens = moved[-1].tokens.stop - moved[0].tokens.start
        # Rows of a prompt on average: each has columns of its own.
        num_rows = -(-num_tokens // (prompts.stop - prompts.start))
        runs.append(_Run(prompts, num_columns, sizes.is_absorbed(num_rows, num_columns), moved))
    return _Stretch(tokens, heads_at_once, prefix, absorbs_prefix, runs)


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


@dataclass(frozen=True, slots=True)
class LatentLayer:
    """Weights and settings of one layer.

    Attributes:
        weight: [H * (n + v), r], which makes a head's plain part of a key and its value from a latent.
        expand: the same as the model's own code does it, with the rotated part appended to keys.
        scale, softcap, sinks: as in `packed_attention`.
    """

    sizes: LatentSizes
    weight: Tensor
    expand: Expand
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None

    def columns(self, kept: Tensor, is_absorbed: bool) -> _Columns:
        """Return the columns of cached latents, [n, 1, C, r + d]."""
        if is_absorbed:
            return _Columns(kept, kept[..., : self.sizes.latent], is_absorbed)
        keys, values = self.expanded(kept)
        return _Columns(keys, values.contiguous(), is_absorbed)  # else it would be copied for each tile

    def expanded(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Expand cached latents, [n, 1, C, r + d], to keys [n, H, C, n + d] and values [n, H, C, v]."""
        return self.expand(kept[..., : self.sizes.latent], kept[..., self.sizes.latent :])

    def attend(self, stretch: _Stretch, q: Tensor, out: Tensor, keys: Tensor, prefix: _Columns | None) -> None:
        """Attend for a stretch's tokens, q [t, H, n + d]; write out [t, H, v].

        Args:
            keys: [P, 1, capacity, r + d], cached latents of the cohort's own tokens.
            prefix: columns that are attended to beside them.
        """
        both = self.weight.view(self.sizes.heads, -1, self.sizes.latent)
        to_keys, to_values = both[:, : self.sizes.plain], both[:, self.sizes.plain :]
        rows, answers = {False: q}, {False: out}
        if stretch.absorbs:
            of_latents = by_head(q[..., : self.sizes.plain], to_keys)
            rows[True] = torch.cat([of_latents, q[..., self.sizes.plain :]], dim=2)
            answers[True] = torch.zeros_like(of_latents)
            out.zero_()
        for run in stretch.runs:
            own = self.columns(keys[run.prompts, :, : run.num_columns], run.is_absorbed)
            for tile in run.tiles:
                parts = [own] if prefix is None else [prefix, own]
                forms = {part.is_absorbed for part in parts}
                folded = {form: tile.fold(rows[form], self.sizes.heads) for form in forms}
                for form, sums in self._sums(tile, folded, parts, stretch.heads_at_once).items():
                    tile.unfold(sums, answers[form])
        if stretch.absorbs:
            out += by_head(answers[True], to_values.transpose(1, 2))

    def _sums(
        self, tile: Tile, rows: dict[bool, Tensor], parts: Sequence[_Columns], at_once: int
    ) -> dict[bool, Tensor]:
        """Return the outputs [n, H, R, ...] of a tile's rows [n, H, R, ...], both keyed by whether they are absorbed.

        Args:
            parts: columns that they attend to; the last part has own columns.
        """
        widths = [part.keys.shape[2] for part in parts[:-1]] + [tile.columns.stop]
        found: dict[bool, list[Tensor]] = {form: [] for form in rows}
        for first in range(0, self.sizes.heads, at_once):
            heads = slice(first, first + at_once)
            seen = [part.part(width, heads) for part, width in zip(parts, widths, strict=True)]
            shape, dtype = (tile.bias.shape[0], at_once, tile.bias.shape[2]), parts[-1].keys.dtype
            scores = parts[-1].keys.new_empty(*shape, sum(widths), dtype=torch.promote_types(dtype, torch.float32))
            for part, place in zip(seen, torch.split(scores, widths, dim=3), strict=True):
                part.write_scores(rows[part.is_absorbed][:, heads], place)
            weights = self._weights(scores, tile, widths[-1], heads).to(dtype)
            sums: dict[bool, Tensor] = {}
            for part, own_weights in zip(seen, torch.split(weights, widths, dim=3), strict=True):
                both, form = part.sums(own_weights), part.is_absorbed
                sums[form] = sums[form] + both if form in sums else both
            for form, own_sums in sums.items():
                found[form].append(own_sums)
        return {form: torch.cat(of_heads, dim=1) for form, of_heads in found.items()}

    def _weights(self, scores: Tensor, tile: Tile, num_own: int, heads: slice) -> Tensor:
        """Return the softmax of scores [n, heads, R, C], overwriting them; the last `num_own` columns are own ones."""
        scores.mul_(self.scale)
        if self.softcap is not None:
            scores.div_(self.softcap).tanh_().mul_(self.softcap)
        num_shared = scores.shape[3] - num_own
        scores[..., num_shared:].add_(tile.bias)
        if tile.prefix_bias is not None:
            scores[..., :num_shared].add_(tile.prefix_bias)
        if self.sinks is None:
            return scores.softmax(dim=3)
        sinks = self.sinks[heads].to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        return torch.cat([scores, sinks], dim=3).softmax(dim=3)[..., :-1]


def by_head(rows: Tensor, weights: Tensor) -> Tensor:
    """Multiply each head's rows [t, H, a] by its matrix [H, a, b]; return [t, H, b]."""
    if rows.device.type == "cpu":  # which copies matrices that are parts of larger ones, where there are several
        return torch.stack([rows[:, head] @ weights[head] for head in range(len(weights))], dim=1)
    return torch.bmm(rows.transpose(0, 1), weights).transpose(0, 1)


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Sizes of a layer: number of heads; sizes of a latent, a head's plain and rotated part of a key, and a value."""

    heads: int
    latent: int
    plain: int
    rotated: int
    value: int

    @classmethod
    def of(cls, weight: Tensor, query: Tensor, key: Tensor) -> LatentSizes:
        """Infer the sizes from shapes.

        Args:
            weight: [H * (n + v), r], makes keys and values of latents.
            query: [..., H, n + d]
            key: [..., r + d], a token's cached latent.
        """
        heads, latent = query.shape[-2], weight.shape[1]
        rotated = key.shape[-1] - latent
        plain = query.shape[-1] - rotated
        return cls(heads, latent, plain, rotated, len(weight) // heads - plain)

    @property
    def expanded(self) -> LayerShape:
        """Shape of the expanded keys and values."""
        return LayerShape(self.heads, self.plain + self.rotated, self.value, self.heads)

    def is_absorbed(self, num_rows: int, num_columns: int) -> bool:
        """Return whether these rows need fewer multiplications with latents than with keys made of them."""
        of_weights = self.latent * (self.plain + self.value)
        absorbed = num_rows * (of_weights + num_columns * (2 * self.latent + self.rotated))
        return absorbed < num_columns * (of_weights + num_rows * (self.plain + self.rotated + self.value))


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
