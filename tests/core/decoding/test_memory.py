"""Memory: limits that are known before, and what happens where it is not enough. No answer may change, none be lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Engine, EngineConfig
from hpd_core.attention.kv_cache import CacheBlock, CachePool, CacheShape
from hpd_core.decoding import decoder as decoder_module
from hpd_core.decoding import memory
from hpd_core.decoding.cohort_cache import CohortCache
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.memory import Limits, activation_bytes, fitted, free_bytes
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.system.device import is_out_of_memory
from hpd_core.text.endings import Endings
from tests.core.engines import answers, config
from tests.core.families import FAMILIES, VOCABULARY, build_model
from tests.core.helpers import random_ids
from tests.core.products import SCHEMAS, products
from tests.examples import examples
from tests.tables import table

CPU = torch.device("cpu")
SHAPE = CacheShape.uniform(num_layers=2, num_kv_heads=2, key_size=8, value_size=8, dtype=torch.float32, device=CPU)
BYTES_PER_TOKEN = 2 * 2 * 16 * 4
MIB = 2**20
NEVER = Endings.none(VOCABULARY)
LLAMA = build_model("llama")
attach(LLAMA)


def test_what_the_allocator_says_is_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"))
    for status in ("ALLOC_FAILED", "NOT_INITIALIZED"):
        error = RuntimeError(f"CUDA error: CUBLAS_STATUS_{status} when calling `cublasCreate(handle)`")
        assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))


def test_a_cache_that_does_not_fit_is_made_smaller_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    wanted = EngineConfig(max_cached_tokens=100_000)
    assert fitted(wanted, SHAPE, 100_000 * BYTES_PER_TOKEN * 2, 1) == Limits(1024, 8, 100_000, 64)
    assert caplog.records == []
    smaller = fitted(wanted, SHAPE, 10_000 * BYTES_PER_TOKEN, 1)
    assert smaller == Limits(1024, 8, 5000, 64), "half of a CPU's free memory"
    assert "engine.max_cached_tokens is 100000" in caplog.text
    assert fitted(wanted, SHAPE, 0, 1).max_cached_tokens == 4096, "less is not worth trying"
    assert fitted(EngineConfig(max_cached_tokens=50), SHAPE, 0, 1).max_cached_tokens == 50
    caplog.clear()
    assert fitted(EngineConfig(), SHAPE, 10_000 * BYTES_PER_TOKEN, 1) == smaller, "by itself it is as large as fits"
    assert caplog.records == []


@table("family", FAMILIES)
def test_what_a_token_takes_is_estimated_from_above(family: str) -> None:
    """Against what really goes in and out of the linear layers of one decoder layer, the experts' products among it."""
    model = build_model(family)
    sizes: dict[str, int] = {}
    tokens = 64

    def count(name: str) -> Any:
        def hook(_: Any, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
            layer = ".".join(name.split(".")[:3])
            sizes[layer] = sizes.get(layer, 0) + given[0].numel() + result.numel()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
            module.register_forward_hook(count(name))
    with torch.inference_mode():
        model(torch.arange(tokens)[None] % VOCABULARY)
    assert len(sizes) == 3
    most = max(sizes.values()) * 4 / tokens
    assert most <= activation_bytes(model, cache_shape(model)) <= 4 * most + 4 * VOCABULARY


def test_free_memory_is_what_a_container_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    of_the_machine = free_bytes(CPU)
    assert of_the_machine > MIB
    # What others take and give back meanwhile is not to be seen.
    of_the_machine = 99 * MIB
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=of_the_machine))
    (tmp_path / "memory.current").write_text(f"{3 * MIB}\n")
    (tmp_path / "memory.max").write_text(f"{4 * MIB}\n")
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 0\n")
    assert free_bytes(CPU) == MIB
    (tmp_path / "memory.stat").write_text(f"anon 7\ninactive_file {2 * MIB}\n")
    assert free_bytes(CPU) == 3 * MIB, "files that were read make room"
    (tmp_path / "memory.max").write_text(f"{MIB}\n")
    assert free_bytes(CPU) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(CPU) == of_the_machine
    (tmp_path / "memory").mkdir()  # version 1
    (tmp_path / "memory/memory.limit_in_bytes").write_text(f"{9 * MIB}\n")
    (tmp_path / "memory/memory.usage_in_bytes").write_text(f"{5 * MIB}\n")
    (tmp_path / "memory/memory.stat").write_text(f"cache 5\ntotal_inactive_file {MIB}\n")
    assert free_bytes(CPU) == 5 * MIB


# A device that holds only so much.


def some_prompts(count: int) -> list[Prompt]:
    rng = np.random.default_rng(count)
    prefixes = [[], random_ids(rng, 5, 9), random_ids(rng, 5, 9)]
    prompts = []
    for number in range(count):
        prefix = prefixes[number % 3]
        branches = [Branch(random_ids(rng, 1, 3), int(rng.integers(1, 12))) for _ in range(1 + number % 4)]
        prompts.append(Prompt(tree_layout(prefix, random_ids(rng, 1, 30), branches), tuple(prefix)))
    return prompts


def small_device(pool: CachePool, capacity: int) -> None:
    """Lets the pool's blocks in use never be more than `capacity` numbers."""
    take = pool.take

    def taking(num_prompts: int, num_columns: int) -> CacheBlock:
        if (
            pool.num_used // pool.shape.dtype.itemsize + num_prompts * num_columns * pool.shape.numbers_per_token
            > capacity
        ):
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate more than there is")
        return take(num_prompts, num_columns)

    pool.take = taking  # type: ignore[method-assign]


def run(decoder: Decoder, prompts: list[Prompt]) -> tuple[list[list[list[int]]], list[Prompt]]:
    decoder.add(prompts)
    finished = []
    while decoder.has_work:
        finished += decoder.step().finished
    return [prompt.tokens for prompt in prompts], finished


@settings(deadline=None, max_examples=examples(12))
@given(count=st.integers(1, 14), room=st.integers(0, 600))
def test_where_the_cache_does_not_fit_all_goes_on_with_less(count: int, room: int) -> None:
    limits = EngineConfig(max_prompts_per_cohort=6)
    shape = cache_shape(LLAMA)
    expected, _ = run(Decoder(LLAMA, NEVER, limits, shape), some_prompts(count))
    decoder = Decoder(LLAMA, NEVER, limits, shape)
    # The longest prompt alone, with the room it may ask for, always fits; with its prefix beside it, too.
    small_device(decoder.pool, (200 + room) * shape.numbers_per_token)
    prompts = some_prompts(count)
    found, finished = run(decoder, prompts)
    assert found == expected
    assert sorted(map(id, finished)) == sorted(map(id, prompts)), "each is reported once"
    assert decoder.pool.num_used == 0


def test_limits_grow_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back to the first limits. Each time that memory runs out doubles the wait."""
    step, fails = Decoder._step, [True, True]

    def failing(decoder: Decoder, started: float) -> StepReport:
        if fails.pop() if fails else False:
            raise torch.OutOfMemoryError("made up")
        return step(decoder, started)

    monkeypatch.setattr(Decoder, "_step", failing)
    monkeypatch.setattr(decoder_module, "_PATIENCE", 4)
    decoder = Decoder(LLAMA, NEVER, EngineConfig(), cache_shape(LLAMA))
    whole = decoder.limits.max_cached_tokens
    decoder.add([Prompt(tree_layout([], [5] * 9, [Branch([6], 30)]), ())])
    seen = []
    while decoder.has_work:
        decoder.step()
        seen.append(decoder.limits.max_cached_tokens)
    assert [(share, len(list(same))) for share, same in groupby(whole // limit for limit in seen)] == [
        *((2, 1), (4, 8), (2, 8), (1, len(seen) - 17))
    ]


@table("fail_at", range(1, 40, 3))
@torch.inference_mode()
def test_nothing_is_lost_wherever_memory_ends(fail_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a merge or a move, when some prompts are finished already and nobody has heard of it."""
    limits = EngineConfig(max_prompts_per_cohort=4)
    expected, _ = run(Decoder(LLAMA, NEVER, limits, cache_shape(LLAMA)), some_prompts(13))
    copy, calls = CohortCache._copy, 0

    def failing(cache: CohortCache, *given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise torch.OutOfMemoryError("made up")
        copy(cache, *given)

    monkeypatch.setattr(CohortCache, "_copy", failing)
    decoder, prompts = Decoder(LLAMA, NEVER, limits, cache_shape(LLAMA)), some_prompts(13)
    found, finished = run(decoder, prompts)
    assert found == expected
    assert sorted(map(id, finished)) == sorted(map(id, prompts))
    assert decoder.pool.num_used == 0


@pytest.fixture
def starved(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        forward = engine._decoder._forward

        def failing(inputs: Any) -> Any:
            if sum(len(item.token_ids) for item in inputs) > 200:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return forward(inputs)

        engine._decoder._forward = failing  # type: ignore[method-assign]
        yield engine


def test_the_engine_goes_on_and_says_so(
    starved: Engine, tiny_model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = products(30)
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        expected = answers(engine.extract(records, SCHEMAS))
    assert answers(starved.extract(records, SCHEMAS)) == expected
    assert "goes on with engine.max_tokens_per_step 2048 instead of 4096" in caplog.text
    before = len(caplog.records)
    assert answers(starved.extract(records, SCHEMAS)) == expected
    assert [r for r in caplog.records[before:] if r.levelno >= logging.WARNING] == [], "it has learned its lesson"


# A real end of memory: a process that may have only so much.


# What admission promises.
