"""The kernel in C++ against attention as it is written down, and what happens where it cannot be compiled."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.attention.dispatch import way_to_attend
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.attention.plan import PromptGroup
from hpd_core.errors import ModelError
from hpd_core.native import library
from tests.core.attention.attention_problems import SHAPES, Problem, Shape, check, check_cache, expected, problem
from tests.core.native import PROCESSORS, WITHOUT_TILES, compiled_for, needs_native, needs_tiles, threads
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


@pytest.mark.full
@needs_native
@needs_tiles
@pytest.mark.parametrize("is_refused", [False, True])
def test_where_the_kernel_refuses_tiles_vectors_do_their_work(is_refused: bool) -> None:
    """Linux refuses them to a process with a stack for signals that could not hold them."""
    script = """
import ctypes, sys
class Stack(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
libc, memory, given = ctypes.CDLL(None), ctypes.create_string_buffer(2048), ctypes.c_uint64()
if sys.argv[1] == "True":
    assert libc.sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, len(memory))), None) == 0
from tests.core.attention.test_native import check_numbers
check_numbers()
ARCH_PRCTL, ARCH_GET_XCOMP_PERM, TILES = 158, 0x1022, 18
assert libc.syscall(ARCH_PRCTL, ARCH_GET_XCOMP_PERM, ctypes.byref(given)) == 0
print("given" if given.value >> TILES & 1 else "refused")
"""
    command = [sys.executable, "-c", script, str(is_refused)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == ("refused\n" if is_refused else "given\n"), done.stderr


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
def test_arrays_that_it_would_misread_are_refused() -> None:
    plain = problem(np.random.default_rng(1), Shape([3, 3], 4), is_native=False).plan
    for name, array, message in (
        ("kv_columns", torch.zeros(12, dtype=torch.int64)[::2], "not contiguous"),
        ("q_scopes", torch.zeros(2, 3, dtype=torch.int32), "another type"),
        ("k_scopes", torch.zeros(2, 7, dtype=torch.int64), "last scopes and"),
        ("k_lasts", torch.zeros(2, 7, dtype=torch.int64), "last scopes and"),
        ("values", plain.values, "blocks of"),
        ("values", [plain.values[0].repeat(1, 1, 1, 2)[..., ::2, None]], "gaps"),
        ("keys", [plain.keys[0].repeat(1, 1, 1, 2)[..., ::2]], "gaps"),
    ):
        item = problem(np.random.default_rng(1), Shape([3, 3], 4))
        misread = replace(item, plan=replace(item.plan, **{name: array}))
        with pytest.raises(ValueError, match=message):
            misread.run()


@needs_native
def test_a_prefix_that_it_would_misread_is_refused() -> None:
    shape = Shape([3, 3, 3], 4, prefix_lengths=(9,), dtype=torch.bfloat16)
    item = problem(np.random.default_rng(1), shape)
    other = problem(np.random.default_rng(1), shape, is_native=False)
    misread = replace(item, plan=replace(item.plan, groups=other.plan.groups))
    with pytest.raises(ValueError, match="blocks of"):
        misread.run()


@needs_native
@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("q", torch.zeros(6, 6, 32), "the cache is for"),
        ("q", torch.zeros(6, 7, 64), "the cache is for"),
        ("k", torch.zeros(6, 2, 65), "the cache is for"),
        ("v", torch.zeros(6, 1, 64), "the cache is for"),
        ("v", torch.zeros(5, 2, 64), "the cache is for"),
        ("v", torch.zeros(6, 2, 64, dtype=torch.bfloat16), "torch.bfloat16, torch.float32"),
    ],
)
def test_heads_that_are_not_the_caches_are_refused(name: str, tensor: Tensor, message: str) -> None:
    item = problem(np.random.default_rng(1), Shape([3, 3], 4))
    setattr(item, name, tensor)
    with pytest.raises(RuntimeError, match=message):
        item.run()


@needs_native
@pytest.mark.parametrize("scale", [0.0, -0.3, float("nan")])
def test_a_scale_that_would_turn_the_scores_round_is_refused(scale: float) -> None:
    item = problem(np.random.default_rng(1), Shape([3, 3], 4))
    item.settings["scale"] = scale
    with pytest.raises(ValueError, match="keep their order"):
        item.run()


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
def test_a_window_as_wide_as_any_is_none() -> None:
    shape = Shape([9, 4], 40, prefix_lengths=(20,))
    item = problem(np.random.default_rng(1), shape)
    plain = item.run()
    for window in (2**31 - 1, 2**31, 2**32 + 9):
        item.settings["window"] = window
        assert torch.equal(item.run(), plain)


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


@pytest.mark.usefixtures("anew")
def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "broken"
    words = r"In function f:\nattention.cpp:3: error: no such type \377"
    compiler.write_text(f"#!/bin/sh\nprintf '{words}' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(ModelError, match=r"exit code 3: attention\.cpp:3: error: no such type"):
        way_to_attend("native", cache_shape())


@pytest.mark.full
@needs_native
def test_where_nothing_can_be_kept_it_is_compiled_for_the_process(anew: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    anew.write_text("a file where the folder should be")
    assert way_to_attend("native", cache_shape()) == "native"
    assert "compiled for this process alone" in caplog.text


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


@pytest.mark.full
@needs_native
def test_it_is_compiled_once_however_many_ask(monkeypatch: pytest.MonkeyPatch, anew: Path) -> None:
    compiled: list[Path] = []
    compile_to = library._compile

    def counted(command: list[str], path: Path) -> None:
        compiled.append(path)
        compile_to(command, path)

    monkeypatch.setattr(library, "_compile", counted)
    found: list[Any] = []
    ask = threading.Barrier(3)

    def load() -> None:
        ask.wait()
        found.append(library._loaded(["g++"]))

    asking = [threading.Thread(target=load) for _ in range(3)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(found) == 3
    assert len(compiled) == 1
    assert sorted(path.suffix for path in anew.iterdir()) in ([".so"], [".lock", ".so"]), "nothing else is left there"
