"""What only a GPU can show: the engine there. Skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from hpd_core import Engine, EngineConfig, EngineError
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.decoder import Decoder
from tests.core.engines import answers, every_answer
from tests.core.families import FUSED, build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.mixers.hybrids import HYBRIDS, build_hybrid
from tests.core.products import SCHEMAS, products
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@contextmanager
def counted_graphs() -> Iterator[list[int]]:
    """The tokens of each step that ran as a CUDA graph, while the block runs."""
    from hpd_core.layers.triton_layers import StepGraphs

    sizes: list[int] = []
    logits = StepGraphs.logits

    def counting(graphs: StepGraphs, plans: Any, token_ids: Any, logit_rows: Any) -> Any:
        found = logits(graphs, plans, token_ids, logit_rows)
        if found is not None:
            sizes.append(len(token_ids))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepGraphs, "logits", counting)
        yield sizes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cuda_graphs": False},
        {"overlap_steps": False},
        {"layers": "transformers"},
        {"attention": "eager"},
    ],
)
@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3", "mistral", "gpt_oss"])
def test_fp32_on_the_gpu_equals_the_oracle_on_the_cpu(
    family: str, layout: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 4, 12)]
    cases = [random_case(rng, layout, prefixes, branches=5, k_max=6) for _ in range(24)]
    limits = EngineConfig(max_tokens_per_step=96, max_prompts_per_cohort=4, **changes)
    with counted_graphs() as sizes:
        prompts = decode(build_model(family).cuda(), cases, endings, limits)
    # In a model with windows only steps of which no token reaches beyond are captured; there are none here.
    has_graphs = family in ("llama", "qwen3") and not changes.keys() & {"cuda_graphs", "layers", "attention"}
    assert bool(sizes) == has_graphs
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5", "falcon_h1", "deepseek_v3", "gemma4_text"])
def test_layers_beside_attention_latents_and_shared_keys_equal_the_oracle(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, "tree", prefixes, branches=4, k_max=5) for _ in range(12)]
    model, oracle = (build_hybrid(name) if name in HYBRIDS else build(name, REACHES["loose"]) for _ in range(2))
    prompts = decode(model.cuda(), cases, endings, EngineConfig(max_tokens_per_step=96, max_prompts_per_cohort=4))
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@pytest.mark.parametrize("changes", [{}, {"layout": "stacked"}, {"layers": "transformers"}, {"answer_threshold": 0.4}])
def test_answers_of_every_kind_are_those_of_the_cpu(
    tiny_model_dir: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    found = []
    for device in ("cpu", "cuda"):
        settings = EngineConfig(device=device, dtype="float32", max_value_tokens=8, **changes)
        with Engine.from_pretrained(str(tiny_model_dir), settings) as engine:
            found.append(every_answer(engine, 30))
    assert found[0] == found[1]


@pytest.mark.parametrize("family", FUSED)
def test_large_steps_equal_the_oracle_too(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tokens than any graph has, documents of many tiles, steps with and without graphs by turns."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    rng = np.random.default_rng(8)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 150, 150), random_ids(rng, 4, 12)]
    cases = [random_case(rng, "tree", prefixes, branches=9, k_max=9, document=300) for _ in range(24)]
    limits = EngineConfig(max_tokens_per_step=2048, max_prompts_per_cohort=8)
    prompts = decode(build_model(family).cuda(), cases, endings, limits)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cuda_graphs": False},
        {"layers": "transformers"},
        {"attention": "eager"},
    ],
)
def test_nothing_waits_for_the_gpu_but_who_wants_its_tokens(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the host stands still with it, for all that a second step is under way."""
    from hpd_core.layers.triton_layers import StepGraphs

    rng = np.random.default_rng(6)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 4, 12)], branches=5, k_max=6) for _ in range(24)]
    limits = EngineConfig(max_tokens_per_step=96, max_prompts_per_cohort=4, **changes)
    model = build_model("llama").cuda()
    decode(model, cases, endings, limits)  # what is made once may wait
    most_in_flight = 0

    def watched(function: Callable[..., Any], mode: str = "error") -> Callable[..., Any]:
        def run(owner: Any, *given: Any, **named: Any) -> Any:
            nonlocal most_in_flight
            if isinstance(owner, Decoder):
                most_in_flight = max(most_in_flight, len(owner._in_flight) + 1)
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode(mode)
            try:
                return function(owner, *given, **named)
            finally:
                torch.cuda.set_sync_debug_mode(before)

        return run

    for owner, name in ((Decoder, "_forward"), (Cohort, "next_input"), (Cohort, "accept"), (Cohort, "retire")):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    monkeypatch.setattr(StepGraphs, "_capture", watched(StepGraphs._capture, "default"))  # once a decoder
    decode(model, cases, endings, limits)
    assert most_in_flight == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"dtype": "float16"},
        {"dtype": "bfloat16", "quantization": "fp8"},
        {"dtype": "bfloat16", "quantization": "nf4"},
        {"dtype": "bfloat16", "attention": "eager"},
    ],
)
def test_other_precisions_answer_every_record(tiny_model_dir: Path, changes: dict[str, str]) -> None:
    quantization = changes.get("quantization")
    if quantization == "nf4":
        pytest.importorskip("bitsandbytes")
    if quantization == "fp8" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no products in FP8")
    config = EngineConfig(device="cuda", max_value_tokens=8, **changes)
    records = products(50)
    with Engine.from_pretrained(str(tiny_model_dir), config) as engine:
        results = engine.extract(records, SCHEMAS)
    assert [result.id for result in results] == [record.id for record in records]
    assert not any(result.error for result in results)
    is_ours = "attention" not in changes and quantization != "nf4"
    assert engine.layers == ("triton" if is_ours else "transformers")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices on this machine")
def test_two_gpus_answer_as_one(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    config = EngineConfig(device="cuda", dtype="float32", max_value_tokens=8)
    with Engine.from_pretrained(str(tiny_model_dir), config) as engine:
        expected = answers(engine.extract(products(50), SCHEMAS))
    with Engine.from_pretrained(str(tiny_model_dir), config.model_copy(update={"tensor_parallel": 2})) as engine:
        assert answers(engine.extract(products(50), SCHEMAS)) == expected
        [other] = [
            child for child in psutil.Process().children() if "hpd_core.parallel.ranks" in " ".join(child.cmdline())
        ]
        other.kill()
        # It must not wait for ever for a process that is gone.
        with pytest.raises(EngineError, match=r"rank 1 .* died"):
            engine.submit(products(3), SCHEMAS).result(120)
