"""What is trained, without Ray: the float32 copies of half-precision weights, and adapters over quantized ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpd_core import ModelError
from pipelines.config.finetuning import FinetuneConfig, OptimizerConfig
from pipelines.training.trained_weights import MasterWeights, TrainedModel, load_state, save_state
from tests.core.fp8_checkpoints import scheme, write
from tests.tables import table

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


def test_gradients_are_clipped_together_and_their_norm_is_told() -> None:
    parameters, weights = make_weights(max_gradient_norm=0.5)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    assert weights.step(0) == pytest.approx(17**0.5, rel=1e-3)
    held = [weights.state()["optimizer"]["state"][index]["exp_avg"] / (1 - 0.9) for index in range(2)]
    norm = torch.cat([gradient.flatten() for gradient in held]).norm()
    assert float(norm) == pytest.approx(0.5, rel=1e-3)


def test_the_learning_rate_rises_and_falls() -> None:
    _, weights = make_weights(warmup_share=0.1, final_learning_rate_share=0.05)
    rates = [weights.learning_rate(number) for number in range(100)]
    assert rates[0] == pytest.approx(1e-5)
    assert max(rates) == rates[9] == pytest.approx(1e-4)
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.05e-4, rel=0.1)


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


@table("method", ["lora", "full"])
def test_gradient_checkpointing_computes_a_layer_twice(method: str, tiny_model_dir: Path) -> None:
    """... and keeps no more of it in between; `make soak` compares what is learned with it."""
    for is_on in (False, True):
        trained = trained_model(
            tiny_model_dir, {}, method=method, optimizer={"gradient_checkpointing": is_on, "learning_rate": 1e-4}
        )
        calls: list[object] = []
        layer = next(module for name, module in trained.model.named_modules() if name.endswith("layers.0.mlp"))
        layer.register_forward_pre_hook(lambda *_, calls=calls: calls.append(None))
        ids = torch.arange(5, 45)[None]
        loss = trained.model(input_ids=ids, labels=ids).loss
        assert len(calls) == 1
        loss.backward()
        assert len(calls) == 1 + is_on


def test_a_pattern_of_layers_that_is_none_is_named(tiny_model_dir: Path) -> None:
    with pytest.raises(
        ModelError, match=r"lora\.target_modules: '\*_proj' is no regular expression: nothing to repeat"
    ):
        trained_model(tiny_model_dir, {}, lora={"target_modules": "*_proj"})
    assert trained_model(tiny_model_dir, {}, lora={"target_modules": ".*q_proj"}).parameters


def test_nothing_is_trained_over_fp8(tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is trained over weights in FP8; train in bfloat16"):
        trained_model(tiny_model_dir, {"quantization": "fp8"})
    write(tmp_path, scheme())
    with pytest.raises(ModelError, match="the checkpoint is in FP8, over which nothing is trained"):
        trained_model(tmp_path, {})


@table("quantization", ["nf4", "int8"])
def test_an_adapter_over_quantized_weights_has_its_gradients_behind_a_validation_too(
    quantization: str, tiny_model_dir: Path
) -> None:
    """bitsandbytes packs 4-bit weights for some CPUs when a model is first used in eval mode, and packed ones pass no
    gradient on. Those of nf4 are held to a model whose weights are the quantized ones, written out.
    """
    pytest.importorskip("bitsandbytes")
    trained = trained_model(tiny_model_dir, {"quantization": quantization})
    packed = [getattr(module, "support_avx512bf16_for_cpu", False) for module in trained.model.modules()]
    assert not any(packed), "whatever this processor has"
    ids = torch.arange(5, 45)[None]
    for name, parameter in trained.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)

    def gradients() -> dict[str, torch.Tensor]:
        trained.model.zero_grad()
        trained.model(input_ids=ids, labels=ids).loss.backward()
        return {name: p.grad for name, p in trained.model.named_parameters() if p.grad is not None}

    before = gradients()
    trained.model.eval()
    with torch.no_grad():
        trained.model(input_ids=ids)
    trained.model.train()
    after = gradients()
    assert len(before) == len(after) == 2 * 7 * trained.model.config.num_hidden_layers
    for name, gradient in before.items():
        torch.testing.assert_close(after[name], gradient, atol=1e-6, rtol=1e-4)
    if quantization == "nf4":
        from bitsandbytes.functional import dequantize_4bit

        for module in trained.model.modules():
            if hasattr(module, "base_layer"):
                weight = module.base_layer.weight
                dense = torch.nn.Linear(module.base_layer.in_features, module.base_layer.out_features, bias=False)
                dense.weight = torch.nn.Parameter(dequantize_4bit(weight.data, weight.quant_state), requires_grad=False)
                module.base_layer = dense
        for name, gradient in gradients().items():
            torch.testing.assert_close(gradient, before[name], atol=1e-4, rtol=1e-3)
