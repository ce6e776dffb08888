"""Weights of an adapter under other keys than peft's save_pretrained writes: taken where it is exact, else refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hpd_core import ModelError
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.adapters import load_weights
from tests.core.families import build_model
from tests.core.models.test_adapters import logits, train, use

PREFIX = "base_model.model."
Rename = Callable[[str], str]


def named(name: str) -> Rename:
    """As in the state dict of a model in training: the adapter's name behind the matrix's."""

    def rename(key: str) -> str:
        if key.endswith(("embedding_A", "embedding_B")):
            return f"{key}.{name}"
        return key.removesuffix("weight") + f"{name}.weight"

    return rename


# What writes such keys, and how they differ from peft's own.
SPELLINGS: dict[str, Rename] = {
    "peft": lambda key: key,
    "state dict": named("default"),
    "state dict of another name": named("my-adapter_2"),
    "an adapter called lora": named("lora"),
    "injected": lambda key: key.removeprefix(PREFIX),
    "injected, state dict": lambda key: named("default")(key.removeprefix(PREFIX)),
    "data parallel": lambda key: f"module.{key}",
    "data parallel inside": lambda key: key.replace(PREFIX, f"{PREFIX}module."),
    "compiled": lambda key: f"_orig_mod.{key}",
    "compiled inside": lambda key: key.replace(PREFIX, f"{PREFIX}_orig_mod."),
    "compiled and parallel": lambda key: f"module._orig_mod.{named('default')(key)}",
    "fsdp": lambda key: key.replace(".layers.1.", ".layers.1._fsdp_wrapped_module."),
    "checkpointing": lambda key: key.replace(".self_attn.", "._checkpoint_wrapped_module.self_attn."),
    "deepspeed": lambda key: f"_forward_module.{key}",
    "deepspeed engine": lambda key: f"engine.module.{named('default')(key)}",
    "lightning": lambda key: f"model.{named('default')(key)}",
    "lightning, injected": lambda key: f"state_dict.{PREFIX}{key}",
}


@pytest.fixture(scope="module")
def base() -> Any:
    return build_model("llama")


@pytest.fixture
def adapter(base: Any, tmp_path: Path) -> Path:
    train(base, tmp_path, target_modules=["embed_tokens", "q_proj", "up_proj"])
    return tmp_path


def rename(folder: Path, how: Rename) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({how(key): weight for key, weight in load_file(path).items()}, path)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_same_weights_under_other_keys(spelling: str, base: Any, adapter: Path) -> None:
    expected = logits(use(base, adapter))
    rename(adapter, SPELLINGS[spelling])
    assert torch.equal(logits(use(base, adapter)), expected)
    assert not torch.equal(logits(base), expected)


Q_PROJ = f"{PREFIX}model.layers.0.self_attn.q_proj"
FOREIGN = {
    f"{Q_PROJ}.lora_B.bias": "its matrices have biases; only plain LoRA is supported, train it without lora_bias",
    f"{Q_PROJ}.lora_B.default.bias": "its matrices have biases",
    f"{Q_PROJ}.lora_A.my-adapter.bias": "its matrices have biases",
    f"{Q_PROJ}.bias": "it holds more than LoRA matrices",
    f"{Q_PROJ}.base_layer.weight": "it holds more than LoRA matrices",
    f"{PREFIX}lm_head.modules_to_save.default.weight": "it holds more than LoRA matrices",
    f"{PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta": "it holds more than LoRA matrices",
    "lora_unet_down_blocks_0_proj.lora_down.weight": "it is in another format than peft's; convert it to that",
    "model.layers.0.self_attn.q_proj.lora_a": "it is in another format than peft's; convert it to that",
    "layers.0.attn.q_proj.lora_b.weight": "it is in another format than peft's; convert it to that",
    f"{Q_PROJ}.lora_A": "it holds more than LoRA matrices",
    "lora_A.weight": "it holds more than LoRA matrices",
}


def refusal(base: Any, folder: Path, weights: dict[str, Tensor]) -> str:
    path = folder / "adapter_model.safetensors"
    save_file({key: weight.clone() for key, weight in (load_file(path) | weights).items()}, path)
    with pytest.raises(ModelError) as caught:
        use(base, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("key", FOREIGN)
def test_other_weights_are_refused_by_their_name(key: str, base: Any, adapter: Path) -> None:
    message = refusal(base, adapter, {key: torch.ones(4)})
    assert FOREIGN[key] in message
    assert key in message


def test_training_does_not_go_on_from_whole_layers(base: Any, tmp_path: Path) -> None:
    trained = train(base, tmp_path, modules_to_save=["lm_head"])
    with (
        open_adapter(str(tmp_path)) as opened,
        pytest.raises(ModelError, match=r"it holds whole layers, such as lm_head"),
    ):
        load_weights(trained, opened)
