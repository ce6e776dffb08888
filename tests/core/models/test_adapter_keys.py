"""Weights of an adapter under other keys than peft's save_pretrained writes are refused by name."""

from __future__ import annotations

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
from tests.core.models.test_adapters import train, use

PREFIX = "base_model.model."


@pytest.fixture(scope="module")
def base() -> Any:
    return build_model("llama")


@pytest.fixture
def adapter(base: Any, tmp_path: Path) -> Path:
    train(base, tmp_path, target_modules=["embed_tokens", "q_proj", "up_proj"])
    return tmp_path


Q_PROJ = f"{PREFIX}model.layers.0.self_attn.q_proj"
FOREIGN = (
    f"{Q_PROJ}.lora_B.bias",
    f"{Q_PROJ}.lora_A.default.weight",
    f"{Q_PROJ}.base_layer.weight",
    f"module.{Q_PROJ}.lora_A.weight",
    "model.layers.0.self_attn.q_proj.lora_a",
)


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
    assert f"it holds more than LoRA matrices, such as {key}; save it with peft's save_pretrained" in message


def test_training_does_not_go_on_from_whole_layers(base: Any, tmp_path: Path) -> None:
    trained = train(base, tmp_path, modules_to_save=["lm_head"])
    with (
        open_adapter(str(tmp_path)) as opened,
        pytest.raises(ModelError, match=r"it holds whole layers, such as lm_head"),
    ):
        load_weights(trained, opened)
