"""FP8 at load: made of weights in full precision, adapters merged before, or read from a checkpoint that has them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from hpd_core import Engine, EngineConfig, ModelError
from hpd_core.layers import fp8
from hpd_core.layers.fp8 import Fp8Linear, quantize_model
from hpd_core.models.loading import load_model
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

from .test_adapters import logits, train

CPU = {"device": "cpu", "dtype": "float32", "max_value_tokens": 8}


def answers(engine: Any) -> list[list[tuple[str | None, str]]]:
    return [[(v.raw, v.status) for v in result.values.values()] for result in engine.extract(products(9), SCHEMAS)]


# Of weights in full precision.


def test_weights_are_put_into_fp8_at_load(tiny_model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU, quantization="fp8")) as engine,
    ):
        assert "FP8 is emulated on a CPU: slower than without it" in caplog.text
        described = engine.describe()
        model = engine._weights.model
        assert sum(isinstance(module, Fp8Linear) for module in model.modules()) == 14
        found = answers(engine)
    whole = load_model(str(tiny_model_dir), EngineConfig(**CPU))
    quantize_model(whole)
    with Engine(whole, answering_tokenizer(), EngineConfig(**CPU)) as engine:
        assert answers(engine) == found
        assert engine.describe()["quantization"] == described["quantization"] == "fp8"
    with Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU)) as engine:
        assert answers(engine) != found, "nothing worth testing"
        size = engine.describe()["model_size"]
        assert engine.describe()["quantization"] is None
    in_fp8 = described["model_size"]
    assert size is not None
    assert in_fp8 is not None
    assert in_fp8["layer_parameters"] == size["layer_parameters"]
    assert in_fp8["weight_bytes"] < size["weight_bytes"]


def test_an_adapter_is_merged_before(tiny_model_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    base = load_model(str(tiny_model_dir), EngineConfig(**CPU))
    train(base, tmp_path)
    with Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU), adapter=str(tmp_path)) as engine:
        merged = engine._weights.model
        engine.close()
        quantize_model(merged)
        merged.set_attn_implementation("eager")
        expected = logits(merged)
    config = EngineConfig(**CPU, quantization="fp8")
    with Engine.from_pretrained(str(tiny_model_dir), config, adapter=str(tmp_path)) as engine:
        model = engine._weights.model
        engine.close()
        model.set_attn_implementation("eager")
        assert torch.equal(logits(model), expected)
        assert not [name for name, _ in model.named_modules() if "lora" in name]
    assert float((logits(load_model(str(tiny_model_dir), config)) - expected).abs().mean()) > 0.05


def test_a_gpu_without_it_is_refused_before_anything_is_loaded(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A10G")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    in_bf16 = {"device": "cuda", "dtype": "bfloat16"}
    reason = r"FP8 cannot be had: NVIDIA A10G does not multiply in FP8 .* 8\.6.*; set engine\.quantization to null, "
    with pytest.raises(ModelError, match=reason + "or to 'nf4'"):
        load_model(str(tiny_model_dir), EngineConfig(**in_bf16, quantization="fp8"))


# Of a checkpoint in FP8.


OTHERS: dict[str, dict[str, Any]] = {
    "llm-compressor's": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
    },
    "Qwen's own": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "fbgemm": {"quant_method": "fbgemm_fp8"},
}


@table("kind", OTHERS)
def test_it_is_refused_with_the_way_out(kind: str, tmp_path: Path) -> None:
    answering_model(answering_tokenizer()).config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": OTHERS[kind]}))
    with pytest.raises(
        ModelError, match=r"stored in FP8, .* take the model in bfloat16 with engine\.quantization: fp8"
    ):
        load_model(str(tmp_path), EngineConfig(**CPU))


def test_scales_that_nobody_names_are_not_left_out_in_silence(tmp_path: Path) -> None:
    """As of older checkpoints by other tools. Weights that are in FP8 and have no scales are what they say."""
    model = answering_model(answering_tokenizer())
    model.config.save_pretrained(tmp_path)
    name = "model.layers.0.mlp.up_proj.weight"
    stored = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    stored[name] = stored[name].to(fp8.DTYPE)
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(load_model(str(tmp_path), EngineConfig(**CPU)).get_parameter(name), stored[name].float())
    save_file(stored | {f"{name}_scale": torch.ones(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no quantization_config, which says what .*up_proj\.weight_scale is for"):
        load_model(str(tmp_path), EngineConfig(**CPU))
