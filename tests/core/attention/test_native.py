"""The kernel in C++ against attention as it is written down, and what happens where it cannot be compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention.dispatch import way_to_attend
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.attention.plan import PromptGroup
from hpd_core.errors import ModelError
from hpd_core.native import library
from tests.core.attention.attention_problems import SHAPES, Problem, Shape, check, check_cache, expected, problem
from tests.core.native import PROCESSORS, WITHOUT_TILES, compiled_for, needs_native, threads
from tests.core.triton import MISSING
from tests.examples import examples


@needs_native
@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES, num_threads=st.sampled_from([1, 3]))
def test_the_kernel_computes_attention(seed: int, shape: Shape, num_threads: int) -> None:
    """Prompts with and without tokens and prefixes, columns nobody may see, sizes that fill no vector."""
    item = problem(np.random.default_rng(seed), shape)
    before = item.plan.keys[0].clone()
    with threads(num_threads):
        found = item.run()
    check(item, found)
    check_cache(item, before)


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache, and a process that has not looked for the library yet."""
    monkeypatch.setenv("HPD_CACHE", str(tmp_path))
    library._load.cache_clear()
    yield tmp_path / "native"
    library._load.cache_clear()


@pytest.mark.full
@needs_native
@pytest.mark.parametrize("processor", [*PROCESSORS, WITHOUT_TILES])
def test_it_computes_the_same_without_the_instructions_of_this_machine(tmp_path: Path, processor: str) -> None:
    """As for processors without AVX-512, and without AVX at all. Sums of many numbers are right on average."""
    with compiled_for(processor, tmp_path):
        check_numbers()


def check_numbers() -> None:
    rng = np.random.default_rng(9)
    for dtype in (torch.float32, torch.bfloat16):
        # Whole vectors, and parts of one, of any length.
        for window, softcap, size, value_size in ((None, None, 64, 64), (9, 3.0, 24, 7), (None, None, 18, 10)):
            shape = Shape([9, 0, 33], 40, 2, 3, size, value_size, (50,), dtype, window, softcap, sinks=softcap)
            item = problem(rng, shape)
            check(item, item.run())
    for value_size in (64, 8):  # whole vectors, and what is left behind them
        item = problem(rng, Shape([60, 60, 60], 90, 2, 9, 64, value_size, (40,), torch.bfloat16))
        found, wanted = item.run().double(), expected(item)
        bias = (found.abs().sum() / wanted.abs().sum() - 1).abs().item()
        assert bias < 4e-4, "numbers are cut off, not rounded: that would be 14e-4"


@needs_native
@pytest.mark.parametrize("processor", ["native", WITHOUT_TILES])
def test_a_prompt_attends_bit_for_bit_alike_in_any_company(tmp_path: Path, processor: str) -> None:
    """Alone its rows are cut into more parts, for the threads."""
    with compiled_for(processor, tmp_path):
        for dtype, size, window, cap, earlier in (
            (torch.bfloat16, 64, None, None, 40),
            (torch.bfloat16, 64, None, 3.0, 300),  # several chunks
            (torch.bfloat16, 24, 30, None, 40),
            (torch.float32, 64, None, None, 300),
        ):
            counts, prefix = [9, 33, 2, 14], (50,)
            shape = Shape(counts, earlier, 2, 3, size, 64, prefix, dtype, window, softcap=cap, sinks=cap)
            for num_threads in (1, 3):
                check_company(shape, num_threads)


def check_company(shape: Shape, num_threads: int) -> None:
    rng = np.random.default_rng(5)
    item = problem(rng, shape)
    together = item.run()
    stops = np.cumsum(shape.counts)
    for p, (stop, count) in enumerate(zip(stops, shape.counts, strict=True)):
        with threads(num_threads):
            assert torch.equal(only(item, p).run(), together[stop - count : stop])


def only(item: Problem, p: int) -> Problem:
    """The problem with prompt `p` alone."""
    plan = item.plan
    stop = int(plan.counts[: p + 1].sum())
    tokens, prompts = slice(stop - int(plan.counts[p]), stop), slice(p, p + 1)
    prefix = next(part.prefix for part in plan.groups if part.start <= p < part.stop)
    small = replace(
        plan,
        start=0,
        stop=int(plan.counts[p]),
        counts=plan.counts[prompts],
        used=plan.used[prompts],
        kv_prompts=torch.zeros_like(plan.kv_prompts[tokens]),
        kv_columns=plan.kv_columns[tokens],
        q_scopes=plan.q_scopes[prompts],
        q_sights=plan.q_sights[prompts],
        k_scopes=plan.k_scopes[prompts],
        k_lasts=plan.k_lasts[prompts],
        k_positions=plan.k_positions[prompts],
        keys=[plan.keys[0][prompts]],
        values=[plan.values[0][prompts]],
        groups=[PromptGroup(0, 1, prefix)],
    )
    return Problem(small, item.q[tokens], item.k[tokens], item.v[tokens], item.settings)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_fills_up_vectors_and_tiles_is_not_what_was_in_memory(dtype: torch.dtype) -> None:
    """NaN is there, from a larger problem of the same thread, and 0 times NaN would be NaN. So it is in the cache."""
    for size, value_size, length in ((24, 10, 1), (64, 64, 31), (80, 80, 33), (2, 10, 32), (32, 16, 40)):
        rng = np.random.default_rng(size)
        before = problem(rng, Shape([60, 60], 90, key_size=96, value_size=96, prefix_lengths=(130,), dtype=dtype))
        for x in (before.q, before.k, before.v):
            x.fill_(torch.nan)
        shape = Shape([9, 3], 40, key_size=size, value_size=value_size, prefix_lengths=(length,), dtype=dtype)
        item = problem(rng, shape)
        with threads(1):
            assert before.run().isnan().all()
            check(item, item.run())


@needs_native
def test_missing_memory_is_an_error_of_python() -> None:
    """In a process of its own, which may not have more."""
    script = """
import resource, numpy as np, torch
from tests.core.attention.test_native import Shape, problem
item = problem(np.random.default_rng(1), Shape([4], 9, 1, 1, 8, 8))
item.run()
wide = problem(np.random.default_rng(1), Shape([4], 9, 1, 1, 2**19, 2**19))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
torch.set_num_threads(1)
wide.run()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert "attention found no memory" in done.stderr
    assert done.returncode == 1


def cache_shape(**changes: Any) -> CacheShape:
    given = {"dtype": torch.float32, "device": torch.device("cpu"), "key_size": 8} | changes
    return CacheShape.uniform(num_layers=1, num_kv_heads=1, value_size=8, **given)


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("compiler", "message"), [("no-such-compiler", "no-such-compiler"), ('g++ "', "No closing quotation")]
)
def test_without_a_compiler_it_attends_by_matrix_products(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: str, message: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert way_to_attend("auto", cache_shape()) == "eager"
    assert "decoding is slower than it could be: the kernel in C++ cannot be had" in caplog.text
    with pytest.raises(ModelError, match=rf"(?s)engine\.attention is 'native'.*{message}.*install g\+\+"):
        way_to_attend("native", cache_shape())


@pytest.mark.parametrize(
    ("changes", "way", "message"),
    [
        ({"device": torch.device("cuda", 0)}, "eager" if MISSING else "triton", "runs on a CPU, not on cuda:0"),
        ({"dtype": torch.float16}, "eager", "torch.float16"),
        ({"key_size": 7}, "eager", "even size, not torch.float32 and size 7"),
    ],
)
def test_what_it_cannot_do_is_done_another_way(changes: dict[str, Any], way: str, message: str) -> None:
    assert way_to_attend("auto", cache_shape(**changes)) == way
    with pytest.raises(ModelError, match=message):
        way_to_attend("native", cache_shape(**changes))
