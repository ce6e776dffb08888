"""What only a GPU can show. Skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Engine, EngineConfig, EngineError
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.decoder import Decoder
from tests.core.attention.attention_problems import SHAPES, Shape, check, on_device, problem
from tests.core.engines import answers
from tests.core.families import build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.products import SCHEMAS, products
from tests.examples import examples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.mark.parametrize("changes", [{}, {"overlap_steps": False}, {"layers": "transformers"}, {"attention": "triton"}])
@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3", "mistral"])
def test_fp32_on_the_gpu_equals_the_oracle_on_the_cpu(
    family: str, layout: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 4, 12)]
    cases = [random_case(rng, layout, prefixes, branches=5, k_max=6) for _ in range(24)]
    limits = EngineConfig(max_tokens_per_step=96, max_prompts_per_cohort=4, **changes)
    prompts = decode(build_model(family).cuda(), cases, endings, limits)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@settings(max_examples=examples(300), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES, half=st.booleans())
def test_the_kernel_in_triton_computes_attention(seed: int, shape: Shape, half: bool) -> None:
    """The problems that Triton's interpreter is given where there is no GPU, and those of half precision."""
    from hpd_core.attention.triton import TritonAttention

    if half and shape.dtype == torch.bfloat16:
        shape = replace(shape, dtype=torch.float16)
    item = problem(np.random.default_rng(seed), shape)
    there = on_device(item, torch.device("cuda"))
    found = there.run(TritonAttention)
    # What it is to compute reads the cache as a kernel has left it.
    item.plan.keys[0].copy_(there.plan.keys[0])
    item.plan.values[0].copy_(there.plan.values[0])
    check(item, found.cpu())


@pytest.mark.parametrize("drafts", [0, 64])
@pytest.mark.parametrize("attention", ["sdpa", "eager", "triton"])
def test_nothing_waits_for_the_gpu_but_who_wants_its_tokens(
    attention: str, drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the host stands still with it, for all that a second step is under way."""
    rng = np.random.default_rng(6)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 4, 12)], branches=5, k_max=6) for _ in range(24)]
    limits = EngineConfig(
        max_tokens_per_step=96, max_prompts_per_cohort=4, attention=attention, max_draft_tokens_per_step=drafts
    )
    model = build_model("llama").cuda()
    decode(model, cases, endings, limits)  # what is made once may wait
    most_in_flight = 0

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(owner: Any, *given: Any) -> Any:
            nonlocal most_in_flight
            if isinstance(owner, Decoder):
                most_in_flight = max(most_in_flight, len(owner._in_flight) + 1)
            torch.cuda.set_sync_debug_mode("error")
            try:
                return function(owner, *given)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return run

    for owner, name in ((Decoder, "_forward"), (Cohort, "next_input"), (Cohort, "accept"), (Cohort, "retire")):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    decode(model, cases, endings, limits)
    assert most_in_flight == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"dtype": "float16"},
        {"quantization": "nf4"},
        {"dtype": "bfloat16", "attention": "triton"},
    ],
)
def test_other_precisions_answer_every_record(tiny_model_dir: Path, changes: dict[str, str]) -> None:
    config = EngineConfig(device="cuda", max_value_tokens=8, **changes)
    records = products(50)
    with Engine.from_pretrained(str(tiny_model_dir), config) as engine:
        results = engine.extract(records, SCHEMAS)
    assert [result.id for result in results] == [record.id for record in records]
    assert not any(result.error for result in results)
    assert engine.layers == ("transformers" if config.quantization else "compiled")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices on this machine")
def test_two_gpus_answer_as_one(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    config = EngineConfig(device="cuda", dtype="float32", max_value_tokens=8)
    with Engine.from_pretrained(str(tiny_model_dir), config) as engine:
        expected = answers(engine.extract(products(50), SCHEMAS))
    with Engine.from_pretrained(str(tiny_model_dir), config.model_copy(update={"tensor_parallel": 2})) as engine:
        assert answers(engine.extract(products(50), SCHEMAS)) == expected
        [other] = [
            child
            for child in psutil.Process().children()
            if "hpd_core.parallel.follower_process" in " ".join(child.cmdline())
        ]
        other.kill()
        # It must not wait for ever for a process that is gone.
        with pytest.raises(EngineError, match=r"rank 1 .* died"):
            engine.submit(products(3), SCHEMAS).result(120)
