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
from hpd_core.layers.fp8 import Fp8Linear, quantize_model, quantize_rows
from hpd_core.models.loading import load_model
from tests.core.fp8_checkpoints import scheme, write
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
    write(tmp_path, scheme())
    with pytest.raises(ModelError, match=reason + "with the model in bfloat16"):
        load_model(str(tmp_path), EngineConfig(**in_bf16))


# Of a checkpoint in FP8.


@pytest.mark.parametrize("asked", [None, "fp8"])
@pytest.mark.parametrize(
    ("weights", "shards"), [({}, 1), ({"strategy": "tensor"}, 1), ({"observer": "minmax", "group_size": None}, 3)]
)
def test_a_checkpoint_is_used_as_it_is_stored(
    weights: dict[str, Any], shards: int, asked: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = write(tmp_path, scheme(weights), shards=shards)
    config = EngineConfig(**CPU, quantization=asked)
    with caplog.at_level(logging.WARNING):
        model = load_model(str(tmp_path), config)
    assert [record.name for record in caplog.records] == ["hpd_core.models.loading"], "of the scales, nobody warns"
    in_fp8 = {name: module for name, module in model.named_modules() if isinstance(module, Fp8Linear)}
    assert len(in_fp8) == 14
    for name, layer in in_fp8.items():
        assert torch.equal(layer.weight8.view(torch.uint8), stored[f"{name}.weight"].view(torch.uint8))
        scales = stored[f"{name}.weight_scale"].float().flatten().expand(layer.out_features)
        assert torch.equal(layer.weight_scales, scales)
    assert model.dtype == torch.float32
    assert type(model.lm_head) is torch.nn.Linear
    with Engine.from_pretrained(str(tmp_path), config) as engine:
        assert engine.describe()["quantization"] == "fp8"
        assert len({raw for result in answers(engine) for raw, _ in result}) > 2
    # What the weights were made of answers alike, up to what FP8 rounds.
    whole = answering_model(answering_tokenizer())
    quantize_model(whole)
    difference = float((logits(model, 300) - logits(whole, 300)).std() / logits(whole, 300).std())
    assert difference < 0.3


def test_what_the_checkpoint_leaves_alone_stays(tmp_path: Path) -> None:
    """A layer in full precision, and a head in FP8, which becomes one in full precision."""
    name = "model.layers.0.mlp.down_proj"
    head = answering_model(answering_tokenizer()).lm_head.weight
    head8, scales = quantize_rows(head)
    stored = write(tmp_path, scheme(), model__layers__0__mlp__down_proj__weight_scale=None)
    stored |= {f"{name}.weight": torch.ones(stored[f"{name}.weight"].shape)}
    stored |= {"lm_head.weight": head8, "lm_head.weight_scale": scales[:, None]}
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = load_model(str(tmp_path), EngineConfig(**CPU))
    assert torch.equal(model.get_submodule(name).weight, torch.ones(64, 128))
    assert sum(isinstance(module, Fp8Linear) for module in model.modules()) == 13
    torch.testing.assert_close(model.lm_head.weight, head8.float() * scales[:, None])
    with Engine.from_pretrained(str(tmp_path), EngineConfig(**CPU)) as engine:
        assert len(answers(engine)) == 9


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "static": (
        scheme(inputs={"dynamic": False, "strategy": "tensor"}),
        r"its activations have scales that were fixed by calibration \(static\)",
    ),
    "of the whole batch": (scheme(inputs={"strategy": "tensor"}), "other products in the batch would move"),
    "weights alone": (scheme(inputs={"num_bits": 16}), "its activations are not in FP8"),
    "by groups": (scheme({"strategy": "group", "group_size": 128}), "its weights have scales by group"),
    "with zero points": (scheme({"symmetric": False}), "its weights have zero points"),
    "mixed": (
        scheme() | {"config_groups": scheme()["config_groups"] | {"group_1": {"weights": {"type": "int"}}}},
        "a part of its weights is quantized in another way",
    ),
    "Qwen's own": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"},
        r"blocks of 128 x 128 weights share a scale, where HPD has one for every output channel",
    ),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, "it is in 'fbgemm_fp8', where HPD has"),
}


@table("kind", OTHERS)
def test_other_formats_are_refused_with_the_way_out(kind: str, tmp_path: Path) -> None:
    quantization, reason = OTHERS[kind]
    answering_model(answering_tokenizer()).config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    with pytest.raises(ModelError, match=f"{reason}.*; take the model in bfloat16 with engine.quantization: fp8"):
        load_model(str(tmp_path), EngineConfig(**CPU))


def test_scales_that_nobody_names_are_not_left_out_in_silence(tmp_path: Path) -> None:
    """As of older checkpoints by other tools. Weights that are in FP8 and have no scales are what they say."""
    stored = write(tmp_path, scheme())
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    reason = r"no quantization_config, which says what model\.layers\.0\.mlp\.down_proj\.weight_scale is for"
    for asked in (None, "fp8"):
        with pytest.raises(ModelError, match=reason):
            load_model(str(tmp_path), EngineConfig(**CPU, quantization=asked))
    plain = {key: tensor for key, tensor in stored.items() if not key.endswith("_scale")}
    save_file(plain, tmp_path / "model.safetensors", metadata={"format": "pt"})
    name = "model.layers.0.mlp.up_proj.weight"
    model = load_model(str(tmp_path), EngineConfig(**CPU))
    assert torch.equal(model.get_parameter(name), plain[name].float())


_SCALE = "model__layers__1__mlp__up_proj__weight_scale"


@table(
    ("changes", "reason"),
    [
        ({_SCALE: None}, r"layers\.1\.mlp\.up_proj has no scale"),
        ({_SCALE: torch.ones(7)}, r"up_proj\.weight_scale has 7 numbers for 128 output channels"),
        ({_SCALE: torch.full((128, 1), torch.nan)}, "negative or not finite"),
        ({"model__layers__1__mlp__up_proj__weight": torch.ones(128, 64)}, "up_proj has a scale, and no weight in FP8"),
        ({"model__norm__weight": None}, r"it lacks model\.norm\.weight"),
        ({"model__layers__0__self_attn__q_proj__weight": torch.ones(3, 64).to(fp8.DTYPE)}, "in another shape"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    write(tmp_path, scheme(), **changes)
    with pytest.raises(ModelError, match=reason):
        load_model(str(tmp_path), EngineConfig(**CPU))
