"""What runs on GPUs alone, on a pretended one: nothing is mixed, nothing is read too early, and nobody waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpd_core import AutoregressiveBaseline, Engine, EngineConfig
from hpd_core.layout import fill_layout
from hpd_core.training import loss
from hpd_core.training.examples import Example
from hpd_core.training.loss import attach_training, collate, forward_loss
from tests.core.engines import answers
from tests.core.families import build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.pretended_gpu import GpuTensor, PretendedGpu, pretended_gpu
from tests.core.products import SCHEMAS, products
from tests.tables import table


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


@pytest.mark.parametrize(
    ("layout", "family", "settings"),
    [
        pytest.param(layout, *case, marks=() if layout == "tree" and case[0] != "gemma2" else pytest.mark.full)
        for layout in ("tree", "stacked")
        for case in (
            ("llama", {}),
            ("llama", {"overlap_steps": False}),
            ("gemma2", {}),
            ("gemma3", {}),
        )
    ],
)
def test_decoding_equals_the_oracle_and_never_waits(layout: str, family: str, settings: dict[str, Any]) -> None:
    """Where there is no Triton."""
    config = EngineConfig(attention="eager", max_tokens_per_step=96, max_prompts_per_cohort=4, **settings)
    check_decoding(layout, family, config)


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


def test_the_baseline_answers_as_on_the_cpu(tiny_model_dir: Path) -> None:
    def ask(device: str) -> Any:
        config = EngineConfig(device=device, dtype="float32", max_value_tokens=8)
        with AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config) as baseline:
            return answers(baseline.extract(products(6), SCHEMAS))

    expected = ask("cpu")
    with pretended_gpu():
        assert ask("cuda") == expected


@table("layout", ["tree", "stacked"])
def test_training_has_the_gradients_of_the_cpu(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's kernel for masks: cuDNN's would be planned anew for nearly every pack."""
    masks: list[torch.Tensor] = []

    def seen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if q.is_cuda:
            assert not torch.backends.cuda.cudnn_sdp_enabled()
            masks.append(bias)
        return fused(q, k, v, bias, *args, **kwargs)

    fused = loss.sdpa_attention
    monkeypatch.setattr(loss, "sdpa_attention", seen)
    rng = np.random.default_rng(7)
    prefix = random_ids(rng, 4, 8)
    filled = []
    for _ in range(4):
        prompt = random_case(rng, layout, [prefix], branches=4, k_max=6).prompt()
        values = [random_ids(rng, 1, int(limit)) for limit in prompt.layout.max_new_tokens]
        filled.append(Example(fill_layout(prompt.layout, values), prompt.layout.num_prefix_tokens, 1))

    def gradients(device: str) -> dict[str, Any]:
        model = build_model("llama").to(device)
        attach_training(model)
        total, _ = forward_loss(model, collate(filled, device, 32))
        total.backward()
        return {name: np.array(p.grad.tolist()) for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients("cpu")
    with pretended_gpu():
        found = gradients("cuda")
    assert masks
    assert all(mask.stride(-2) % 8 == 0 for mask in masks), "torch would copy it, in every layer"
    assert found.keys() == expected.keys() != set()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * np.abs(gradient).max(), err_msg=name)


class TestThePretence:
    """It must notice what it is there for."""

    def test_host_and_device_are_not_mixed(self) -> None:
        with pretended_gpu():
            there = torch.zeros(3, 4, device="cuda")
            assert isinstance(there[1:], GpuTensor)
            with pytest.raises(RuntimeError, match="same device"):
                there + torch.ones(4)
            there[1] = 5
            there[:, :2].mul_(2)
            assert there.tolist() == [[0, 0, 0, 0], [10, 10, 5, 5], [0, 0, 0, 0]]

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

    def test_what_is_page_locked_is_sent_without_waiting(self) -> None:
        with pretended_gpu() as gpu:
            assert torch.arange(3).pin_memory().to("cuda", non_blocking=True).is_cuda
            assert not gpu.waits

    def test_launches_are_counted(self) -> None:
        with pretended_gpu() as gpu:
            there = torch.zeros(4, 3, device="cuda")
            gpu.launches.clear()
            views = there.view(12), there[1:], there.t(), there.reshape(3, 4), there.split(2), torch.empty_like(there)
            assert len(views) == 6
            assert there[:0].add(1).shape == (0, 3)
            assert gpu.launches.total() == 0
            there.mul_(2)
            torch.nn.functional.linear(there, there)
            there.t().contiguous()
            there.add_(1)
            there.to("cpu", non_blocking=True)
            assert gpu.launches.total() == 5
