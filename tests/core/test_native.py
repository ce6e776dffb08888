"""The kernel in C++ against attention as it is written down, and what happens where it cannot be compiled."""

from __future__ import annotations

import platform
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.attention import AttentionPlan, PrefixCache, PromptGroup, way_to_attend
from hpd_core.cache import CacheShape
from hpd_core.cohort import UNSEEN
from hpd_core.errors import ModelError
from hpd_core.layout import PUBLIC, visible
from hpd_core.native import attention as native_attention_module
from hpd_core.native import library
from hpd_core.native.attention import native_attention

from .native import needs_native

POISON = 1e4


@dataclass(frozen=True)
class Shape:
    """Of a random problem."""

    counts: list[int]
    earlier: int
    num_kv_heads: int
    group: int
    key_size: int
    value_size: int
    prefix_lengths: list[int]
    dtype: torch.dtype
    window: int | None
    softcap: float | None
    with_sinks: bool


@dataclass
class Problem:
    """A cohort's plan for one layer, the new tokens, and the settings of the layer."""

    plan: AttentionPlan
    q: Tensor
    k: Tensor
    v: Tensor
    settings: dict[str, Any]

    def run(self) -> Tensor:
        """[t, H, D_v]"""
        out = torch.full((*self.q.shape[:2], self.v.shape[2]), torch.nan, dtype=self.q.dtype)
        native_attention(self.plan, 0, self.q, self.k, self.v, out, **self.settings)
        return out


def problem(rng: np.random.Generator, shape: Shape) -> Problem:
    """Prompts with `earlier` columns at most in the cache, some of them of private scopes, the rest poisoned."""

    def draw(*size: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(size)).to(shape.dtype)

    counts = np.array(shape.counts)
    num_prompts, num_tokens = len(counts), int(counts.sum())
    earlier = rng.integers(0, shape.earlier + 1, num_prompts)
    capacity = shape.earlier + int(counts.max()) + 3
    size = (num_prompts, shape.num_kv_heads, capacity)
    keys = torch.full((*size, shape.key_size), POISON, dtype=shape.dtype)
    values = torch.full((*size, shape.value_size), POISON, dtype=shape.dtype)
    prefixes: list[PrefixCache | None] = [None]
    for length in shape.prefix_lengths:
        prefixes.append(
            PrefixCache(
                [draw(shape.num_kv_heads, length, shape.key_size)],
                [draw(shape.num_kv_heads, length, shape.value_size)],
            )
        )
    prefix_of = np.sort(rng.integers(0, len(prefixes), num_prompts))
    groups = [
        PromptGroup(int(rows[0]), int(rows[-1]) + 1, prefixes[i])
        for i in range(len(prefixes))
        if len(rows := np.nonzero(prefix_of == i)[0])
    ]
    k_scopes = torch.full((num_prompts, capacity), PUBLIC)
    k_positions = torch.full((num_prompts, capacity), UNSEEN)
    num_rows = int(counts.max())
    q_scopes, q_positions = torch.full((num_prompts, num_rows), PUBLIC), torch.zeros(num_prompts, num_rows).long()
    kv_prompts, kv_columns = np.repeat(np.arange(num_prompts), counts), np.zeros(num_tokens, dtype=np.int64)
    token = 0
    for p in range(num_prompts):
        behind = int(getattr(prefixes[prefix_of[p]], "num_tokens", 0))
        used = earlier[p] + counts[p]
        # Every token sees itself, which is all that attention asks for; some columns were given up (UNSEEN).
        places = torch.from_numpy(behind + rng.integers(0, used + 1, used))
        scopes = torch.from_numpy(rng.integers(PUBLIC, 3, used))
        k_scopes[p, :used], k_positions[p, :used] = scopes, places
        k_positions[p, : earlier[p]][torch.from_numpy(rng.random(earlier[p]) < 0.2)] = UNSEEN
        keys[p, :, : earlier[p]] = draw(shape.num_kv_heads, earlier[p], shape.key_size)
        values[p, :, : earlier[p]] = draw(shape.num_kv_heads, earlier[p], shape.value_size)
        q_scopes[p, : counts[p]], q_positions[p, : counts[p]] = scopes[earlier[p] :], places[earlier[p] :]
        kv_columns[token : token + counts[p]] = np.arange(earlier[p], used)
        token += counts[p]
    unused = torch.zeros(0, dtype=torch.int64)
    used = earlier + counts
    plan = AttentionPlan(
        start=0,
        stop=num_tokens,
        counts=counts,
        used=used,
        rows=unused,
        unrows=unused,
        kv_prompts=torch.from_numpy(kv_prompts),
        kv_columns=torch.from_numpy(kv_columns),
        q_scopes=q_scopes,
        q_positions=q_positions,
        k_scopes=k_scopes[:, : used.max()],
        k_positions=k_positions[:, : used.max()],
        keys=[keys],
        values=[values],
        groups=groups,
    )
    num_heads = shape.num_kv_heads * shape.group
    # As the models give them: heads before tokens in memory.
    q = draw(num_heads, num_tokens, shape.key_size).transpose(0, 1)
    k = draw(num_tokens, shape.num_kv_heads, shape.key_size)
    v = draw(num_tokens, shape.num_kv_heads, shape.value_size)
    sinks = draw(num_heads) if shape.with_sinks else None
    options = {"scale": 0.3, "window": shape.window, "softcap": shape.softcap, "sinks": sinks}
    return Problem(plan, q, k, v, options)


def expected(item: Problem) -> Tensor:
    """One token and one head at a time, in fp64, from the definition. Reads the cache as the kernel has left it."""
    plan, window = item.plan, item.settings["window"]
    out = torch.zeros(*item.q.shape[:2], item.v.shape[2], dtype=torch.float64)
    group = item.q.shape[1] // item.k.shape[1]
    prefix_of = {p: part.prefix for part in plan.groups for p in range(part.start, part.stop)}
    starts = np.cumsum(plan.counts) - plan.counts
    for token, prompt in enumerate(plan.kv_prompts.tolist()):
        row = token - starts[prompt]
        scope, position = plan.q_scopes[prompt, row], plan.q_positions[prompt, row]
        seen = visible(scope, position, plan.k_scopes[prompt], plan.k_positions[prompt], window)
        columns = seen.nonzero()[:, 0]
        prefix = prefix_of[prompt]
        places = torch.arange(prefix.num_tokens if prefix else 0)
        shared = visible(PUBLIC, position, PUBLIC, places, window).nonzero()[:, 0]
        for head in range(item.q.shape[1]):
            of = head // group
            k, v = plan.keys[0][prompt, of, columns], plan.values[0][prompt, of, columns]
            if prefix:
                k, v = torch.cat([prefix.keys[0][of, shared], k]), torch.cat([prefix.values[0][of, shared], v])
            scores = k.double() @ item.q[token, head].double() * item.settings["scale"]
            if (softcap := item.settings["softcap"]) is not None:
                scores = torch.tanh(scores / softcap) * softcap
            total = scores.exp().sum()
            if (sinks := item.settings["sinks"]) is not None:
                total = total + sinks[head].double().exp()
            out[token, head] = scores.exp() / total @ v.double()
    return out


SHAPES = st.builds(
    Shape,
    counts=st.lists(st.one_of(st.integers(0, 7), st.integers(8, 40)), min_size=1, max_size=5).filter(any),
    earlier=st.sampled_from([0, 1, 14, 50, 90]),
    num_kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    key_size=st.sampled_from([2, 8, 24, 32, 64, 80]),
    value_size=st.sampled_from([1, 8, 16, 40, 64, 80]),
    prefix_lengths=st.lists(st.sampled_from([1, 15, 16, 33, 130]), max_size=2),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    window=st.sampled_from([None, 1, 9, 60]),
    softcap=st.sampled_from([None, 3.0]),
    with_sinks=st.booleans(),
)


@needs_native
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES)
def test_the_kernel_computes_attention(seed: int, shape: Shape) -> None:
    """Prompts with and without tokens and prefixes, columns nobody may see, sizes that fill no vector."""
    item = problem(np.random.default_rng(seed), shape)
    before = item.plan.keys[0].clone()
    found = item.run()
    check(item, found)
    written = torch.zeros(before.shape[:1] + before.shape[2:3], dtype=torch.bool)
    written[item.plan.kv_prompts, item.plan.kv_columns] = True
    kept = ~written[:, None, :, None]
    assert torch.equal(item.plan.keys[0].where(kept, 0), before.where(kept, 0)), "wrote over the cache of others"
    stored = item.plan.keys[0][item.plan.kv_prompts, :, item.plan.kv_columns]
    assert torch.equal(stored, item.k)
    assert torch.equal(item.plan.values[0][item.plan.kv_prompts, :, item.plan.kv_columns], item.v)


def check(item: Problem, found: Tensor) -> None:
    rounding = 2e-5 if found.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), expected(item), atol=rounding, rtol=rounding)


@needs_native
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has processors with and without AVX-512")
def test_it_computes_the_same_without_the_instructions_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for a processor that has neither AVX-512 nor products of bf16."""
    monkeypatch.setattr(library, "_FLAGS", (*library._FLAGS, "-march=x86-64"))
    plain = library._built.__wrapped__("g++", tmp_path)
    monkeypatch.setattr(native_attention_module, "library", lambda: plain)
    rng = np.random.default_rng(9)
    for dtype in (torch.float32, torch.bfloat16):
        for window, softcap, size in ((None, None, 64), (9, 3.0, 24)):
            shape = Shape(
                [9, 0, 33], 40, 2, 3, size, size, [50], dtype, window, softcap, with_sinks=softcap is not None
            )
            item = problem(rng, shape)
            check(item, item.run())


@needs_native
def test_a_prompt_attends_bit_for_bit_alike_in_any_company() -> None:
    """Alone its rows are cut into more parts, for a thread each."""
    rng = np.random.default_rng(5)
    shape = Shape([9, 33, 2, 14], 40, 2, 3, 64, 64, [50], torch.bfloat16, None, None, False)
    item = problem(rng, shape)
    together = item.run()
    stops = np.cumsum(shape.counts)
    for p, (stop, count) in enumerate(zip(stops, shape.counts, strict=True)):
        alone = only(item, p)
        assert torch.equal(alone.run(), together[stop - count : stop])


def only(item: Problem, p: int) -> Problem:
    """The problem with prompt `p` alone."""
    plan = item.plan
    stop = int(plan.counts[: p + 1].sum())
    tokens, prompts = slice(stop - int(plan.counts[p]), stop), slice(p, p + 1)
    prefix = next(part.prefix for part in plan.groups if part.start <= p < part.stop)
    small = AttentionPlan(
        start=0,
        stop=int(plan.counts[p]),
        counts=plan.counts[prompts],
        used=plan.used[prompts],
        rows=plan.rows,
        unrows=plan.unrows,
        kv_prompts=torch.zeros_like(plan.kv_prompts[tokens]),
        kv_columns=plan.kv_columns[tokens],
        q_scopes=plan.q_scopes[prompts],
        q_positions=plan.q_positions[prompts],
        k_scopes=plan.k_scopes[prompts],
        k_positions=plan.k_positions[prompts],
        keys=[plan.keys[0][prompts]],
        values=[plan.values[0][prompts]],
        groups=[PromptGroup(0, 1, prefix)],
    )
    return Problem(small, item.q[tokens], item.k[tokens], item.v[tokens], item.settings)


@needs_native
def test_arrays_with_gaps_are_refused() -> None:
    shape = Shape([3, 3], 4, 1, 1, 8, 8, [], torch.float32, None, None, False)
    item = problem(np.random.default_rng(1), shape)
    object.__setattr__(item.plan, "kv_columns", torch.zeros(12, dtype=torch.int64)[::2])
    with pytest.raises(ValueError, match="not contiguous"):
        item.run()


def cache_shape(**changes: Any) -> CacheShape:
    given = {"dtype": torch.float32, "device": torch.device("cpu"), "key_size": 8} | changes
    return CacheShape(num_layers=1, num_kv_heads=1, value_size=8, **given)


def test_without_a_compiler_it_attends_by_matrix_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert way_to_attend("auto", cache_shape()) == "eager"
    with pytest.raises(ModelError, match=r"(?s)engine\.attention is 'native'.*no-such-compiler.*install g\+\+"):
        way_to_attend("native", cache_shape())


def test_a_compiler_that_fails_is_named_with_its_first_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'no such flag' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(ModelError, match="exit code 3: no such flag"):
        way_to_attend("native", cache_shape())


@pytest.mark.parametrize(
    ("changes", "way", "message"),
    [
        ({"device": torch.device("cuda", 0)}, "sdpa", "runs on a CPU, not on cuda:0"),
        ({"dtype": torch.float16}, "eager", "torch.float16"),
        ({"key_size": 7}, "eager", "even size, not torch.float32 and 7"),
    ],
)
def test_what_it_cannot_do_is_done_another_way(changes: dict[str, Any], way: str, message: str) -> None:
    assert way_to_attend("auto", cache_shape(**changes)) == way
    with pytest.raises(ModelError, match=message):
        way_to_attend("native", cache_shape(**changes))


@needs_native
def test_it_is_compiled_once_and_by_many_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled: list[Path] = []
    compile_to = library._compile

    def counted(command: list[str], path: Path) -> None:
        compiled.append(path)
        compile_to(command, path)

    monkeypatch.setattr(library, "_compile", counted)
    found: list[Any] = []
    load = library._built.__wrapped__
    threads = [threading.Thread(target=lambda: found.append(load("g++", tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) > 1, "nobody met anybody"
    assert all(hasattr(item, "hpd_attend_float32") for item in found)
    compiled.clear()
    load("g++", tmp_path)
    assert not compiled
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"], "nothing else is left there"
