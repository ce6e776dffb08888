"""What is trained, without Ray: the float32 copies of half-precision weights, and adapters over quantized ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.config.finetuning import FinetuneConfig, OptimizerConfig
from pipelines.training.trained_weights import MasterWeights, TrainedModel, load_state, save_state

SETTINGS = {"epochs": 1, "learning_rate": 1e-4, "final_learning_rate_share": 1.0, "warmup_share": 0.0}


def make_weights(**options: Any) -> tuple[list[torch.nn.Parameter], MasterWeights]:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter((torch.rand(4, 3) + 1).bfloat16()), torch.nn.Parameter(torch.rand(5) + 1)]
    return parameters, MasterWeights(parameters, OptimizerConfig(**{**SETTINGS, **options}), num_steps=100)


def take_step(parameters: list[torch.nn.Parameter], weights: MasterWeights, number: int) -> float:
    generator = torch.Generator().manual_seed(number)
    for parameter in parameters:
        noise = torch.rand(parameter.shape, generator=generator)
        parameter.grad = (noise + 0.5).to(parameter.dtype)
    return weights.step(number)


def test_updates_below_a_half_precision_step_add_up() -> None:
    """Between 1 and 2, bfloat16 has steps of 1/128; 100 updates of about 1e-4 are more than one, each is none."""
    parameters, weights = make_weights()
    before = [parameter.detach().clone() for parameter in parameters]
    take_step(parameters, weights, 0)
    assert torch.equal(parameters[0], before[0]), "far below the rounding"
    assert not torch.equal(parameters[1], before[1]), "float32 takes it"
    for number in range(1, 100):
        take_step(parameters, weights, number)
    for parameter, old in zip(parameters, before, strict=True):
        moved = (old - parameter).float()
        # AdamW: about the learning rate a step, whatever the gradients' size.
        torch.testing.assert_close(moved, torch.full_like(moved, 100 * 1e-4), atol=0.005, rtol=0)
        assert parameter.grad is None


def test_a_run_that_is_continued_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Half-precision weights alone would have lost what is below their rounding."""
    parameters, weights = make_weights()
    for number in range(10):
        take_step(parameters, weights, number)
    progress = {"step": 10, "log": [{"loss": 0.5}]}
    save_state(tmp_path, weights, progress, tmp_path / "nothing")
    others, continued = make_weights()
    assert load_state(tmp_path, continued, tmp_path / "nothing") == progress
    for number in range(10, 30):
        take_step(parameters, weights, number)
        take_step(others, continued, number)
    for mine, other in zip(parameters, others, strict=True):
        assert torch.equal(mine, other)
    for mine, other in zip(weights.state()["masters"], continued.state()["masters"], strict=True):
        assert torch.equal(mine, other)


def trained_model(model: Path, engine: dict[str, Any], **changes: Any) -> TrainedModel:
    document = {
        "model": str(model),
        "datasets": [{"gold": "g", "schemas": "s"}],
        "output": "o",
        "engine": {"device": "cpu", "dtype": "float32", **engine},
    }
    return TrainedModel(FinetuneConfig.model_validate(document | changes))


def test_nothing_is_trained_over_fp8(tiny_model_dir: Path) -> None:
    with pytest.raises(ValueError, match="nothing is trained over weights in FP8; train in bfloat16"):
        trained_model(tiny_model_dir, {"quantization": "fp8"})
