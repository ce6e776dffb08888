"""What runs on GPUs alone, on a pretended one: nothing is mixed, nothing is read too early, and nobody waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpd_core import Engine, EngineConfig
from tests.core.engines import answers
from tests.core.families import build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.pretended_gpu import PretendedGpu, pretended_gpu
from tests.core.products import SCHEMAS, products


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
        expected = answers(engine.extract(products(count), SCHEMAS))
    on_gpu = EngineConfig(device="cuda", **common)
    with pretended_gpu() as gpu, Engine.from_pretrained(str(folder), on_gpu) as engine:
        gpu.waits.clear()  # loading may wait
        assert answers(engine.extract(products(count), SCHEMAS)) == expected
        assert not gpu.waits
        return engine.layers


class TestThePretence:
    """It must notice what it is there for."""

    def test_what_has_not_arrived_is_rubbish(self) -> None:
        with pretended_gpu() as gpu:
            there = torch.arange(4, device="cuda")
            here = there.to("cpu", torch.int64, non_blocking=True)
            event = torch.cuda.current_stream().record_event()
            later = (there + 1).to("cpu", non_blocking=True)
            assert here.tolist() != [0, 1, 2, 3]
            event.synchronize()
            assert here.tolist() == [0, 1, 2, 3] != later.tolist()
            torch.cuda.current_stream().record_event().synchronize()
            assert later.tolist() == [1, 2, 3, 4]
            assert not gpu.waits

    @pytest.mark.parametrize(
        "wait",
        [
            lambda there: there.sum().item(),
            lambda there: there.tolist(),
            lambda there: there.to("cpu"),
            lambda there: there[there > 1],
            lambda there: there.nonzero(),
            lambda there: bool(there.any()),
            lambda there: there[torch.tensor([1])],
            lambda there: there.__setitem__(there[:1].clone(), 5),
            lambda there: there.repeat_interleave(there),
            lambda there: torch.where(there > 1),
            lambda there: there.copy_(torch.zeros(4)),
            lambda there: torch.zeros(4).to(there.device, non_blocking=True),
            lambda there: torch.zeros(4).pin_memory().to(there.device),
        ],
    )
    @pytest.mark.parametrize("inference", [True, False])
    def test_who_waits_is_counted(self, inference: bool, wait: Any) -> None:
        with pretended_gpu() as gpu, torch.inference_mode(inference):
            there = torch.arange(4, device="cuda")
            index = torch.arange(2).pin_memory().to("cuda", non_blocking=True)
            there[index] = there[2:].clone()
            assert not gpu.waits
            wait(there)
            assert gpu.waits
