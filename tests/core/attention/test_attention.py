"""Attention by matrix products, in tiles, with prefixes that several prompts share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.attention import kv_cache
from hpd_core.attention import plan as attention
from hpd_core.attention.eager import eager_attention
from hpd_core.attention.plan import AttentionPlan, PromptGroup
from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import prompt_groups
from hpd_core.layout import EVERYBODY, PUBLIC
from tests.core.families import build_model
from tests.core.helpers import (
    TreeCase,
    assert_equals_oracle,
    decode,
    random_branches,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.native import EVERY_WAY, WAYS
from tests.examples import examples

HIDDEN = torch.finfo(torch.float32).min / 2


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """One head and one prompt at a time, in fp64. q: [P, H_kv, M, D]; k, v: [P, H_kv, C, D]; bias: [P, M, C]."""
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=torch.float64)
    for p in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[p, h].double() @ k[p, h].double().T * scale
            if softcap is not None:
                scores = torch.tanh(scores / softcap) * softcap
            weights = (scores + bias[p]).exp()
            total = weights.sum(-1, keepdim=True)
            if sinks is not None:
                group = len(sinks) // q.shape[1]
                total = total + sinks[h * group : (h + 1) * group].double().exp().repeat(len(scores) // group)[:, None]
            out[p, h] = weights / total @ v[p, h].double()
    return out


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_prompts=st.integers(1, 5),
    num_kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    num_rows=st.integers(1, 6),
    num_columns=st.integers(1, 9),
    num_shared=st.integers(1, 7),
    masked_prefix=st.booleans(),
    softcap=st.sampled_from([None, 3.0]),
    with_sinks=st.booleans(),
)
def test_a_shared_prefix_is_attended_to_as_if_it_were_copied(
    seed: int,
    num_prompts: int,
    num_kv_heads: int,
    group: int,
    num_rows: int,
    num_columns: int,
    num_shared: int,
    masked_prefix: bool,
    softcap: float | None,
    with_sinks: bool,
) -> None:
    """What is masked is full of large numbers."""
    torch.manual_seed(seed)
    rows = num_rows * group
    q = torch.randn(num_prompts, num_kv_heads, rows, 8)
    k, v = torch.randn(2, num_prompts, num_kv_heads, num_columns, 8)
    prefix = torch.randn(2, num_kv_heads, num_shared, 8)
    seen = torch.rand(num_prompts, 1, rows, num_columns) < 0.6
    seen[..., 0] = True
    seen_prefix = torch.rand(num_prompts, 1, rows, num_shared) < 0.6 if masked_prefix else None
    bias = torch.zeros(seen.shape).masked_fill(~seen, HIDDEN)
    prefix_bias = None if seen_prefix is None else torch.zeros(seen_prefix.shape).masked_fill(~seen_prefix, HIDDEN)
    unseen = ~seen.any(dim=(1, 2))
    k.transpose(1, 2)[unseen], v.transpose(1, 2)[unseen] = 1e4, 1e4
    sinks = torch.randn(num_kv_heads * group) if with_sinks else None
    found = eager_attention(
        q, k, v, bias, 0.3, softcap=softcap, sinks=sinks, prefix=(prefix[0], prefix[1]), prefix_bias=prefix_bias
    )
    copied = [
        torch.cat([part.expand(num_prompts, -1, -1, -1), own], 2) for part, own in zip(prefix, (k, v), strict=True)
    ]
    shown = torch.zeros(num_prompts, 1, rows, num_shared) if prefix_bias is None else prefix_bias
    expected = plain_attention(q, *copied, torch.cat([shown, bias], -1)[:, 0], 0.3, softcap, sinks)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-4)


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32 - 1),
    layout=st.sampled_from(["tree", "stacked"]),
    family=st.sampled_from(["llama", "mistral", "gemma2", "gemma3", "gpt_oss"]),
    tile=st.sampled_from([1, 50, 300, 5000]),
    cohort_size=st.sampled_from([1, 3, 8]),
    max_cached_prefixes=st.sampled_from([1, 3]),
    budget=st.sampled_from([9, 60, 4096]),
)
def test_any_tiling_equals_the_oracle(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    layout: str,
    family: str,
    tile: int,
    cohort_size: int,
    max_cached_prefixes: int,
    budget: int,
) -> None:
    """Several prefixes a cohort, one of them empty; windows that end inside a prefix; prefixes evicted while in use."""
    monkeypatch.setattr(attention, "TILE_SCORES", {"cpu": tile})
    monkeypatch.setattr(kv_cache, "UNUSED_FILL", 1e4)
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=0.1)
    prefixes = [[], random_ids(rng, 1, 4), random_ids(rng, 9, 15)]
    cases = [random_case(rng, layout, prefixes, branches=3, k_max=6) for _ in range(7)]
    config = EngineConfig(
        attention="eager",
        max_tokens_per_step=budget,
        max_prompts_per_cohort=cohort_size,
        max_cached_prefixes=max_cached_prefixes,
    )
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for case, prompt in list(zip(cases, prompts, strict=True))[::3]:
        assert_equals_oracle(oracle, case, prompt, endings)


@settings(max_examples=examples(200), deadline=None)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    cut=st.integers(0, 12),
    tile=st.sampled_from([1, 100, 2_000, 2**19]),
)
def test_tiles_take_every_token_once_and_little_padding(counts: list[int], cut: int, tile: int) -> None:
    num_prompts, num_rows, start = len(counts), max(counts), 5
    positions = torch.arange(num_rows).expand(num_prompts, -1)
    groups = [
        PromptGroup(first, stop, None)
        for first, stop in ((0, min(cut, num_prompts)), (min(cut, num_prompts), num_prompts))
        if first < stop
    ]
    unused = torch.zeros(0, dtype=torch.int64)
    plan = AttentionPlan(
        start=start,
        stop=start + sum(counts),
        counts=np.array(counts),
        used=np.full(num_prompts, num_rows),
        kv_prompts=unused,
        kv_columns=unused,
        q_scopes=torch.full((num_prompts, num_rows), PUBLIC),
        q_sights=positions,
        k_scopes=torch.full((num_prompts, num_rows), PUBLIC),
        k_lasts=torch.full((num_prompts, num_rows), EVERYBODY),
        k_positions=positions,
        keys=[],
        values=[],
        groups=groups,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "TILE_SCORES", {"cpu": tile})
        tiles = plan.tiles(None, 2, 3)
    # Every token carries its own number through folding and unfolding.
    numbers = torch.arange(1.0, start + sum(counts) + 1)
    out = torch.zeros(len(numbers), 6, 1)
    for part in tiles:
        folded = part.fold(numbers[:, None, None].expand(-1, 6, 1), 3)
        assert folded.shape[2] == part.bias.shape[2], "as many rows as the mask"
        part.unfold(folded, out)
        num_tokens = part.tokens.stop - part.tokens.start
        padding = folded.shape[0] * folded.shape[2] // 2 - num_tokens
        assert padding <= max(16, num_tokens / 4)
    assert torch.equal(out[start:, :, 0], numbers[start:, None].expand(-1, 6))
    assert sum(part.tokens.stop - part.tokens.start for part in tiles) == sum(counts)


@pytest.mark.parametrize("kind", EVERY_WAY)
def test_merged_cohorts_keep_their_prefixes(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Prefixes A B | B A | A C: side by side after merging, each with its own prompts; only one is still cached."""
    merged: list[list[Any]] = []
    merge = Cohort.merge.__func__  # type: ignore[attr-defined]

    def merging(cls: type[Cohort], cohorts: list[Cohort]) -> Cohort:
        whole: Cohort = merge(cls, cohorts)
        merged.append([group.prefix for group in prompt_groups(whole._cache.prefixes)])
        return whole

    monkeypatch.setattr(Cohort, "merge", classmethod(merging))
    rng = np.random.default_rng(6)
    endings = random_endings(rng, share=0.0)
    a, b, c = (random_ids(rng, 4, 8) for _ in range(3))
    cases = [TreeCase(prefix, random_ids(rng, 3, 9), random_branches(rng, 2, 12)) for prefix in (a, b, b, a, a, c) * 2]
    config = EngineConfig(attention=kind, max_prompts_per_cohort=4, max_cached_prefixes=1, max_tokens_per_step=60)
    prompts = decode(build_model("qwen3"), cases, endings, config)
    oracle = build_model("qwen3")
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
    assert merged
    assert all(len(set(groups)) == len(groups) for groups in merged), "a prefix's prompts are torn apart"
    assert any(len(groups) > 1 for groups in merged)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_the_ways_to_attend_agree(family: str) -> None:
    rng = np.random.default_rng(8)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 12)], branches=4, k_max=6) for _ in range(6)]
    runs = [decode(build_model(family), cases, endings, EngineConfig(attention=way)) for way in WAYS]
    for ours, *others in zip(*runs, strict=True):
        for theirs in others:
            assert ours.tokens == theirs.tokens
            np.testing.assert_allclose(np.concatenate(ours.logprobs), np.concatenate(theirs.logprobs), atol=1e-4)


def test_a_prompt_attends_alike_in_any_company_in_bfloat16() -> None:
    """Scores and sums of one prompt, alone and beside others, are made of the same products in the same order."""
    torch.manual_seed(0)
    q = torch.randn(9, 2, 6, 64, dtype=torch.bfloat16)
    k, v = torch.randn(2, 9, 2, 40, 64, dtype=torch.bfloat16)
    prefix = torch.randn(2, 2, 100, 64, dtype=torch.bfloat16)
    bias = torch.zeros(9, 1, 6, 40)
    together = eager_attention(q, k, v, bias, 0.125, prefix=(prefix[0], prefix[1]))
    alone = [
        eager_attention(q[p : p + 1], k[p : p + 1], v[p : p + 1], bias[p : p + 1], 0.125, prefix=(prefix[0], prefix[1]))
        for p in range(9)
    ]
    share = (torch.cat(alone) != together).float().mean().item()
    assert share < 0.01
