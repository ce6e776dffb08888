"""What runs on GPUs alone, on a pretended one: nothing is mixed, nothing is read too early, and nobody waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpd_core import Engine, EngineConfig
from tests.core.engines import every_answer
from tests.core.families import build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.pretended_gpu import PretendedGpu, pretended_gpu


def check_decoding(
    layout: str, family: str, config: EngineConfig, num_cases: int = 12, branches: int = 5, k_max: int = 6
) -> PretendedGpu:
    """Answers equal the oracle's, and nobody waits."""
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 4, 12)]
    cases = [random_case(rng, layout, prefixes, branches=branches, k_max=k_max) for _ in range(num_cases)]
    oracle = build_model(family)
    with pretended_gpu() as gpu:
        model = build_model(family).to("cuda")
        assert model.device.type == "cuda"
        gpu.waits.clear()
        prompts = decode(model, cases, endings, config)
    assert not gpu.waits
    # While the host waits for one step, the device has another.
    assert (gpu.most_behind > 0) == (config.overlap_steps == "auto")
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
    return gpu


def check_engine(folder: Path, count: int, settings: dict[str, Any]) -> str:
    """An engine answers as on the CPU, and nobody waits; whose layers they are."""
    common = {"dtype": "float32", "max_value_tokens": 8} | settings
    on_cpu = EngineConfig(device="cpu", **common | {"attention": "auto"})
    with Engine.from_pretrained(str(folder), on_cpu) as engine:
        expected = every_answer(engine, count)
    on_gpu = EngineConfig(device="cuda", **common)
    with pretended_gpu() as gpu, Engine.from_pretrained(str(folder), on_gpu) as engine:
        gpu.waits.clear()  # loading may wait
        assert every_answer(engine, count) == expected
        assert not gpu.waits
        return engine.layers
