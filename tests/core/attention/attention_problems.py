"""Random attention problems for the kernels of our own, and what they are to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.attention.dispatch import cache_order
from hpd_core.attention.kv_cache import CacheBlock, CacheOrder, CacheShape
from hpd_core.attention.native import NativeAttention
from hpd_core.attention.plan import AttentionPlan, PrefixCache, PromptGroup
from hpd_core.decoding.cohort_cache import UNSEEN
from hpd_core.layout import EVERYBODY, PUBLIC, visible

POISON = {False: 1e4, True: torch.nan}
"""What is in the cache where nothing is: numbers for those who may read it, and for the kernel in C++ none at all."""


@dataclass(frozen=True)
class Shape:
    """Of a random problem."""

    counts: list[int]
    earlier: int
    num_kv_heads: int = 2
    group: int = 3
    key_size: int = 64
    value_size: int = 64
    prefix_lengths: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    window: int | None = None  # a negative one: chunks
    softcap: float | None = None
    sinks: float | None = None
    scale: float = 0.3


@dataclass
class Problem:
    """A cohort's plan for one layer, the new tokens, and the settings of the layer."""

    plan: AttentionPlan
    q: Tensor
    k: Tensor
    v: Tensor
    settings: dict[str, Any]

    def run(self, attention: Callable[[AttentionPlan], Any] = NativeAttention) -> Tensor:
        """[t, H, D_v], by a kernel."""
        out = torch.full((*self.q.shape[:2], self.v.shape[2]), torch.nan, dtype=self.q.dtype, device=self.q.device)
        attention(self.plan).attend(0, self.q, self.k, self.v, out, **self.settings)
        return out


def problem(rng: np.random.Generator, shape: Shape, *, is_native: bool = True) -> Problem:
    """Prompts with `earlier` columns at most in the cache, some of them of private scopes, the rest poisoned.

    `is_native`: keys and values are in memory as the kernel in C++ wants them.
    """

    def draw(*size: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(size)).to(shape.dtype)

    counts = np.array(shape.counts)
    num_prompts, num_tokens = len(counts), int(counts.sum())
    earlier = rng.integers(0, shape.earlier + 1, num_prompts)
    cpu = torch.device("cpu")
    of_token = CacheShape.uniform(1, shape.num_kv_heads, shape.key_size, shape.value_size, shape.dtype, cpu)
    order = cache_order("native", of_token) if is_native else CacheOrder()

    def block(num_prompts: int, num_columns: int) -> CacheBlock:
        room = order.room_for(num_columns)
        memory = torch.full((num_prompts * room * of_token.numbers_per_token,), POISON[is_native], dtype=shape.dtype)
        return CacheBlock(of_token, order, memory, num_prompts, room)

    capacity = shape.earlier + int(counts.max()) + 3
    own = block(num_prompts, capacity)
    keys, values = own.keys[0], own.values[0]
    prefixes: list[PrefixCache | None] = [None]
    for length in shape.prefix_lengths:
        source = block(1, length)
        source.keys[0][0, :, :length] = draw(shape.num_kv_heads, length, shape.key_size)
        put_values(source, 0, draw(shape.num_kv_heads, length, shape.value_size))
        prefixes.append(PrefixCache(*source.copy_of_prompt(0, length)))
    prefix_of = np.sort(rng.integers(0, len(prefixes), num_prompts))
    groups = [
        PromptGroup(int(rows[0]), int(rows[-1]) + 1, prefixes[i])
        for i in range(len(prefixes))
        if len(rows := np.nonzero(prefix_of == i)[0])
    ]
    k_scopes = torch.full((num_prompts, capacity), PUBLIC)
    k_lasts = torch.full((num_prompts, capacity), EVERYBODY)
    k_positions = torch.full((num_prompts, capacity), UNSEEN)
    num_rows = int(counts.max())
    q_scopes, q_sights = torch.full((num_prompts, num_rows), PUBLIC), torch.zeros(num_prompts, num_rows).long()
    kv_prompts, kv_columns = np.repeat(np.arange(num_prompts), counts), np.zeros(num_tokens, dtype=np.int64)
    token = 0
    for p in range(num_prompts):
        behind = int(getattr(prefixes[prefix_of[p]], "num_tokens", 0))
        used = earlier[p] + counts[p]
        # Every token sees itself, which is all that attention asks for; some columns were given up (UNSEEN).
        places = torch.from_numpy(behind + rng.integers(0, used + 1, used))
        scopes = torch.from_numpy(rng.integers(PUBLIC, 3, used))
        k_scopes[p, :used], k_positions[p, :used] = scopes, places
        # Some are seen from the next scopes, too, as a key is from the tries behind it.
        lasts = scopes + torch.from_numpy(rng.integers(0, 3, used))
        k_lasts[p, :used] = torch.where(scopes == PUBLIC, EVERYBODY, lasts)
        k_positions[p, : earlier[p]][torch.from_numpy(rng.random(earlier[p]) < 0.2)] = UNSEEN
        keys[p, :, : earlier[p]] = draw(shape.num_kv_heads, earlier[p], shape.key_size)
        put_values(own, p, draw(shape.num_kv_heads, earlier[p], shape.value_size))
        q_scopes[p, : counts[p]], q_sights[p, : counts[p]] = scopes[earlier[p] :], places[earlier[p] :]
        kv_columns[token : token + counts[p]] = np.arange(earlier[p], used)
        token += counts[p]
    used = earlier + counts
    plan = AttentionPlan(
        start=0,
        stop=num_tokens,
        counts=counts,
        used=used,
        kv_prompts=torch.from_numpy(kv_prompts),
        kv_columns=torch.from_numpy(kv_columns),
        q_scopes=q_scopes,
        q_sights=q_sights,
        k_scopes=k_scopes[:, : used.max()],
        k_lasts=k_lasts[:, : used.max()],
        k_positions=k_positions[:, : used.max()],
        keys=[keys],
        values=[values],
        groups=groups,
    )
    num_heads = shape.num_kv_heads * shape.group
    # As the models give them: heads before tokens in memory, or all cut from one product.
    q = draw(num_heads, num_tokens, shape.key_size).transpose(0, 1)
    both = draw(num_tokens, shape.num_kv_heads, shape.key_size + shape.value_size)
    k, v = both[..., : shape.key_size], both[..., shape.key_size :]
    sinks = None if shape.sinks is None else draw(num_heads) + shape.sinks
    options = {"scale": shape.scale, "window": shape.window, "softcap": shape.softcap, "sinks": sinks}
    return Problem(plan, q, k, v, options)


def by_column(keys: Tensor, values: Tensor) -> Tensor:
    """Values as keys lie, [..., H_kv, C, D], out of that or of blocks [..., H_kv, blocks, D, columns of a block]."""
    return values if values.dim() == keys.dim() else values.transpose(-1, -2).flatten(-3, -2)


def put_values(block: CacheBlock, prompt: int, new: Tensor) -> None:
    """[H_kv, n, D] into the prompt's first columns of layer 0."""
    values, columns = block.values[0], torch.arange(new.shape[1])
    if values.dim() == 4:
        values[prompt, :, columns] = new
    else:
        size = values.shape[-1]
        values[prompt, :, columns // size, :, columns % size] = new.transpose(0, 1)


def expected(item: Problem) -> Tensor:
    """One token and one head at a time, in fp64, from the definition. Reads the cache as the kernel has left it."""
    plan, window = item.plan, item.settings["window"]
    out = torch.zeros(*item.q.shape[:2], item.v.shape[2], dtype=torch.float64)
    group = item.q.shape[1] // item.k.shape[1]
    values = by_column(plan.keys[0], plan.values[0])
    prefix_of = {p: part.prefix for part in plan.groups for p in range(part.start, part.stop)}
    starts = np.cumsum(plan.counts) - plan.counts
    for token, prompt in enumerate(plan.kv_prompts.tolist()):
        row = token - starts[prompt]
        scope, position = plan.q_scopes[prompt, row], plan.q_sights[prompt, row]
        columns_of = (plan.k_scopes[prompt], plan.k_lasts[prompt], plan.k_positions[prompt])
        seen = visible(scope, position, *columns_of, window)
        columns = seen.nonzero()[:, 0]
        prefix = prefix_of[prompt]
        places = torch.arange(prefix.num_tokens if prefix else 0)
        shared = visible(PUBLIC, position, PUBLIC, EVERYBODY, places, window).nonzero()[:, 0]
        for head in range(item.q.shape[1]):
            of = head // group
            k, v = plan.keys[0][prompt, of, columns], values[prompt, of, columns]
            if prefix:
                k = torch.cat([prefix.keys[0][of, shared], k])
                v = torch.cat([by_column(prefix.keys[0], prefix.values[0])[of, shared], v])
            scores = k.double() @ item.q[token, head].double() * item.settings["scale"]
            if (softcap := item.settings["softcap"]) is not None:
                scores = torch.tanh(scores / softcap) * softcap
            if (sinks := item.settings["sinks"]) is not None:
                scores = torch.cat([scores, sinks[head : head + 1].double()])
            out[token, head] = scores.softmax(0)[: len(v)] @ v.double()
    return out


SHAPES = st.builds(
    Shape,
    counts=st.lists(st.one_of(st.integers(0, 7), st.integers(8, 40)), min_size=1, max_size=5).filter(any),
    earlier=st.sampled_from([0, 1, 14, 50, 90, 300]),
    num_kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    key_size=st.sampled_from([2, 8, 24, 32, 64, 80]),
    value_size=st.sampled_from([1, 8, 16, 40, 64, 80]),
    prefix_lengths=st.lists(st.sampled_from([1, 15, 16, 33, 130]), max_size=2).map(tuple),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    window=st.sampled_from([None, 1, 9, 60, -5, -32]),
    softcap=st.sampled_from([None, 3.0]),
    sinks=st.sampled_from([None, 0.0, 100.0, -100.0]),
    scale=st.sampled_from([0.3, 6.0]),
)


def check(item: Problem, found: Tensor) -> None:
    rounding = 5e-5 if found.dtype == torch.float32 else 2e-2  # of fp32 at scores of some hundred
    torch.testing.assert_close(found.double(), expected(item), atol=rounding, rtol=rounding)


def check_cache(item: Problem, before: Tensor) -> None:
    """The new tokens are in the cache, and the keys of all others are as they were `before`."""
    plan = item.plan
    written = torch.zeros(before.shape[:1] + before.shape[2:3], dtype=torch.bool)
    written[plan.kv_prompts, plan.kv_columns] = True
    kept = ~written[:, None, :, None]
    found, wanted = (keys.where(kept, 0).nan_to_num(1e4) for keys in (plan.keys[0], before))
    assert torch.equal(found, wanted), "wrote over the cache of others"
    assert torch.equal(plan.keys[0][plan.kv_prompts, :, plan.kv_columns], item.k)
    assert torch.equal(by_column(plan.keys[0], plan.values[0])[plan.kv_prompts, :, plan.kv_columns], item.v)
