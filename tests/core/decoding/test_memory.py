"""Memory: limits that are known before, and what happens where it is not enough. No answer may change, none be lost."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Engine, EngineConfig
from hpd_core.attention.kv_cache import CacheBlock, CachePool, CacheShape, LayerShape
from hpd_core.decoding import memory
from hpd_core.decoding.cohort_cache import CohortCache
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.memory import Limits, activation_bytes, fitted, free_bytes, halved
from hpd_core.decoding.prompt import Prompt
from hpd_core.layers import packed_linears
from hpd_core.layers.packed_linears import PackedLinears
from hpd_core.layout import Branch, tree_layout
from hpd_core.mixers.states import MixerShape
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


GIB = 2**30
QWEN3 = {
    "1.7B": tf.Qwen3Config(
        hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8
    ),
    "8B": tf.Qwen3Config(
        hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8
    ),
}


@table(
    ("size", "free", "tokens", "prompts"),
    [
        ("8B", 123.0, 16_384, 128),  # an H200 with the model in it
        ("8B", 28.6, 16_384, 128),  # an L40S
        ("8B", 7.7, 4096, 32),  # 24 GiB
        ("8B", 6.2, 2048, 16),  # what is left of 24 GB on an A10G
        ("1.7B", 19.7, 16_384, 128),
        ("8B", 0.1, 1024, 8),
    ],
)
def test_what_auto_takes_on_a_gpu_leaves_room_for_a_step(size: str, free: float, tokens: int, prompts: int) -> None:
    sizes = QWEN3[size]
    with torch.device("meta"):
        model = tf.Qwen3ForCausalLM(sizes).to(torch.bfloat16)
    shape = replace(cache_shape(model), device=torch.device("cuda"))
    limits = fitted(EngineConfig(), shape, int(free * GIB), activation_bytes(model, shape))
    assert (limits.max_tokens_per_step, limits.max_prompts_per_cohort) == (tokens, prompts)
    if free < 1:
        return
    # What our own code has at the same time of a layer, its logits in blocks, and what their reduction takes beside.
    heads = (sizes.num_attention_heads + 2 * sizes.num_key_value_heads) * sizes.head_dim
    of_a_token = 4 * sizes.hidden_size + 2 * heads + 3 * sizes.intermediate_size
    step = 2 * tokens * of_a_token + 3 * 2**28
    cache = limits.max_cached_tokens * shape.numbers_per_token * 2
    assert step + cache < free * GIB


def test_what_the_user_sets_is_what_is_taken() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert Limits.of(EngineConfig(), cpu) == Limits(4096, 32, 262_144, 64)
    assert Limits.of(EngineConfig(), gpu) == Limits(16_384, 128, 262_144, 64)
    assert Limits.of(EngineConfig(max_tokens_per_step=100_000), gpu, 5000) == Limits(100_000, 32, 262_144, 64)
    assert Limits.of(EngineConfig(max_prompts_per_cohort=7), gpu, 5000) == Limits(4096, 7, 262_144, 64)
    assert Limits.of(EngineConfig(), cpu, 0) == Limits(1024, 8, 262_144, 64)


def test_models_say_the_width_of_their_mlps_in_several_ways() -> None:
    common = {"vocab_size": 400, "hidden_size": 12, "num_attention_heads": 2}
    attention, head = 4 * 12 + 2 * 4 * 6, 100
    for sizes, width in (
        (tf.LlamaConfig(**common, intermediate_size=7), 7),
        (tf.OPTConfig(**common, ffn_dim=9), 9),
        (tf.GPT2Config(vocab_size=400, n_embd=12, n_head=2), 48),
        (SimpleNamespace(**common, intermediate_size=[3, 8, 5]), 8),
    ):
        weight = torch.zeros(400, 12)
        model = SimpleNamespace(
            config=SimpleNamespace(get_text_config=lambda sizes=sizes: sizes),
            get_output_embeddings=lambda weight=weight: SimpleNamespace(weight=weight),
            get_input_embeddings=lambda weight=weight: SimpleNamespace(weight=weight),
        )
        shape = CacheShape((LayerShape(2, 6, 6, num_heads=2),), torch.float32, CPU, (0,))
        assert activation_bytes(model, shape) == 4 * (attention + 3 * 12 + 3 * width + head)


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


@table(
    ("sizes", "chunk", "measured"),
    [
        ((16, 16, 128, 128, 1), 64, 154_000),  # Qwen3.5 0.8B
        ((1, 48, 128, 64, 1), 256, 636_000),  # Granite 4 H of 1,536 dimensions
        ((32, 32, 128, 128, 128), 64, 3_296_000),  # Kimi Linear of 2,304
        ((1, 3072, 16, 1, 1), 64, 157_000),  # Mamba of 1,536
    ],
)
def test_layers_beside_attention_take_as_much_as_was_measured(
    sizes: tuple[int, ...], chunk: int, measured: int
) -> None:
    """Bytes a token above those of the linear layers, in a step of 1,024 on a CPU."""
    shape = MixerShape(8, 4, torch.bfloat16, CPU, *sizes, chunk=chunk)
    assert measured <= shape.bytes_in_a_step <= 2 * measured


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


@given(
    tokens=st.integers(1, 10**6),
    prompts=st.integers(1, 10**4),
    slots=st.integers(1, 10**9),
    prefixes=st.integers(1, 99),
)
def test_halving_comes_to_an_end(tokens: int, prompts: int, slots: int, prefixes: int) -> None:
    limits: Limits | None = Limits(
        max_tokens_per_step=tokens,
        max_prompts_per_cohort=prompts,
        max_cached_tokens=slots,
        max_cached_prefixes=prefixes,
    )
    for _ in range(30):
        assert limits is not None
        smaller = halved(limits)
        if smaller is None:
            assert limits.max_prompts_per_cohort == limits.max_cached_prefixes == 1
            assert max(limits.max_tokens_per_step, limits.max_cached_tokens) <= 64
            return
        assert EngineConfig(**asdict(smaller)), "such may be set"
        assert smaller.max_tokens_per_step <= max(64, limits.max_tokens_per_step)
        assert smaller.max_prompts_per_cohort <= limits.max_prompts_per_cohort
        assert smaller != limits
        limits = smaller
    raise AssertionError("no end")


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
        if pool.num_used + num_prompts * num_columns * pool.shape.numbers_per_token > capacity:
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


@pytest.mark.full
def test_what_is_too_large_alone_is_an_error_and_others_go_on() -> None:
    limits, shape = EngineConfig(max_prompts_per_cohort=4), cache_shape(LLAMA)
    decoder = Decoder(LLAMA, NEVER, limits, shape)
    small_device(decoder.pool, 100 * shape.numbers_per_token)
    huge = Prompt(tree_layout([], random_ids(np.random.default_rng(0), 300, 300), [Branch([5], 2)]), ())
    with pytest.raises(torch.OutOfMemoryError):
        run(decoder, [huge])
    decoder.clear()
    expected, _ = run(Decoder(LLAMA, NEVER, limits, shape), some_prompts(1))
    assert run(decoder, some_prompts(1))[0] == expected


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

_LIMITED = """
import logging, resource, sys
logging.basicConfig(level=logging.WARNING)
import numpy as np, torch
from hpd_core import EngineConfig
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.decoder import Decoder
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings
from hpd_core.layers.packed_linears import PackedLinears
from tests.core.families import VOCABULARY, build_model

torch.set_num_threads(1)
model = build_model("llama")
attach(model)
never = Endings.none(VOCABULARY)
limits = EngineConfig(max_prompts_per_cohort=64, max_tokens_per_step=10**6, max_cached_tokens=10**5)

def run(count):
    rng = np.random.default_rng(1)
    ids = rng.integers(3, VOCABULARY, (count, 1500)).tolist()
    prompts = [Prompt(tree_layout([], row, [Branch([5, 6], 3)]), ()) for row in ids]
    decoder = Decoder(model, never, limits, cache_shape(model))
    decoder.add(prompts)
    while decoder.has_work:
        decoder.step()
    return [prompt.tokens for prompt in prompts]

expected = run(2)
[size] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")]
resource.setrlimit(resource.RLIMIT_AS, ((size << 10) + (64 << 20),) * 2)
found = run(64)
assert found[:2] == expected and all(found), "answers"
"""


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an address space is limited only on Linux")
def test_a_process_that_may_not_have_more_goes_on_with_less() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "out of memory ([enforce fail at alloc_cpu" in done.stderr


# What admission promises.


@settings(deadline=None, max_examples=examples(25))
@given(count=st.integers(1, 14), slots=st.integers(1, 900))
def test_the_cache_takes_what_was_allowed(count: int, slots: int) -> None:
    """But for one prompt alone, and the room by which a block may grow."""
    limits = EngineConfig(max_cached_tokens=slots, max_prompts_per_cohort=6)
    decoder, prompts = Decoder(LLAMA, NEVER, limits, cache_shape(LLAMA)), some_prompts(count)
    widest = max(prompt.most_own_tokens for prompt in prompts)
    prefixes = 6 * len({prompt.prefix_key for prompt in prompts}) * 9
    most = 0
    decoder.add(prompts)
    while decoder.has_work:
        decoder.step()
        most = max(most, sum(cohort.num_cached_tokens for cohort in decoder._scheduler.running))
    assert most <= 1.25 * max(slots, widest) + prefixes + 4 * 4 * count


@pytest.mark.full
def test_a_failed_step_is_not_charged_to_those_who_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder(LLAMA, NEVER, EngineConfig(), cache_shape(LLAMA))
    forward = decoder._forward

    def failing(inputs: Any) -> Any:
        time.sleep(0.05)
        raise torch.OutOfMemoryError("made up")

    monkeypatch.setattr(decoder, "_forward", failing)
    with pytest.raises(torch.OutOfMemoryError):  # when nothing is left to halve
        run(decoder, some_prompts(1))
    decoder.clear()
    monkeypatch.setattr(decoder, "_forward", forward)
    decoder.add(some_prompts(1))
    started = time.perf_counter()
    report = decoder.step()
    assert report.seconds <= time.perf_counter() - started


@table("fail_at", [0, 3])
def test_weights_that_cannot_be_packed_leave_the_model_as_it_was(fail_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    linears = PackedLinears(build_model("llama").to(torch.bfloat16))
    if not linears._layers:
        pytest.skip("no packed weights on this CPU")
    pack, calls = packed_linears._pack, 0

    def failing(layer: torch.nn.Linear) -> Any:
        nonlocal calls
        calls += 1
        if calls > fail_at:
            raise torch.OutOfMemoryError("made up")
        return pack(layer)

    monkeypatch.setattr(packed_linears, "_pack", failing)
    with pytest.raises(torch.OutOfMemoryError), linears.active():
        pass
    assert not any("forward" in layer.__dict__ for layer in linears._layers)


def test_the_cache_is_one_piece_of_memory_once_the_engine_knows_how_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the settings ask for may be more than the system gives; a first step is made before anybody looks."""
    empty = torch.empty

    def refuse(*size: Any, **options: Any) -> torch.Tensor:
        if size and isinstance(size[0], int) and size[0] > 1_000_000:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", refuse)
    config = EngineConfig(max_cached_tokens=10**9)
    decoder = Decoder(LLAMA, NEVER, config, cache_shape(LLAMA))
    expected, _ = run(decoder, some_prompts(3))
    monkeypatch.setattr(decoder, "_free_bytes", lambda: 0)
    decoder.fit()
    blocks = []
    take = decoder.pool.take
    monkeypatch.setattr(decoder.pool, "take", lambda *size: blocks.append(take(*size)) or blocks[-1])
    assert run(decoder, some_prompts(3))[0] == expected
    starts = {block.memory.untyped_storage().data_ptr() for block in blocks}
    assert len(starts) == 1 < len(blocks)


def test_forgotten_prefixes_are_computed_anew() -> None:
    decoder = Decoder(LLAMA, NEVER, EngineConfig(), cache_shape(LLAMA))
    work = []
    for forgets in (False, False, True):
        if forgets:
            decoder.forget_prefixes()
        decoder.add(some_prompts(5))
        prefixes = []
        while decoder.has_work:
            prefixes += decoder.step().computed_prefixes
        work.append(len(prefixes))
    assert work == [2, 0, 2]
