"""Multimodal checkpoints are loaded as their text tower: the same logits, and nothing that reads images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.auto import modeling_auto as auto

from hpd_core import EngineConfig, ModelError
from hpd_core.models.loading import load_empty, load_model
from tests.core.sweep.configs import tiny_config
from tests.tables import table

CPU = EngineConfig(device="cpu", dtype="float32")
_FAR = 4096

ALONE = {"llava": "LlamaForCausalLM", "mistral3": "MistralForCausalLM", "gemma3": "Gemma3ForCausalLM"}
"""Families whose text tower transformers has a class for, and which."""

MORE_ALONE = {
    "idefics3": "LlamaForCausalLM",
    "internvl": "Qwen2ForCausalLM",
    "llava_next": "LlamaForCausalLM",
    "llava_onevision": "Qwen2ForCausalLM",
    "ovis2": "Qwen2ForCausalLM",
    "smolvlm": "LlamaForCausalLM",
    "video_llama_3": "Qwen2ForCausalLM",
}

OF_THEIR_OWN = ("qwen2_5_vl", "aya_vision", "qwen3_vl", "qwen2_vl")
"""Whose text tower runs by the multimodal model's class."""

_FULL = pytest.mark.full
FAMILIES = [
    *ALONE,
    "qwen2_5_vl",
    *(pytest.param(name, marks=_FULL) for name in (*MORE_ALONE, *OF_THEIR_OWN[1:])),
]


def build(family: str, **more: Any) -> Any:
    """A tiny multimodal model in fp32, its text tower's weights wide."""
    torch.manual_seed(0)
    if family in ("qwen2_vl", "qwen2_5_vl"):  # sections of half a head of 16
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
        more = {"text_config": tiny_config(f"{family}_text", _FAR, rope_parameters=rope)}
    config = tiny_config(family, _FAR, **more)
    model = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)](config)
    with torch.no_grad():
        for parameter in model.get_decoder().parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


@torch.inference_mode()
def logits_of(model: Any) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.arange(5, 30)[None], use_cache=False).logits
    return logits


def text_weights(model: Any) -> int:
    """Numbers of the text tower and the head."""
    parts = [*model.get_decoder().parameters(), *model.get_output_embeddings().parameters()]
    return sum(each.numel() for each in {id(each): each for each in parts}.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tower_answers_as_the_whole_model(family: str, tmp_path: Path) -> None:
    whole = build(family)
    whole.save_pretrained(tmp_path)
    model = load_model(str(tmp_path), CPU)
    torch.testing.assert_close(logits_of(model), logits_of(whole), rtol=1e-4, atol=1e-4)
    assert sum(each.numel() for each in model.parameters()) == text_weights(whole)
    empty = load_empty(str(tmp_path), CPU)
    assert {name: each.shape for name, each in empty.named_parameters()} == {
        name: each.shape for name, each in model.named_parameters()
    }
    assert type(model).__name__ == {**ALONE, **MORE_ALONE}.get(family, type(whole).__name__)


SCALED = {
    "granite": {"logits_scaling": 8.0},
    "gemma2": {"final_logit_softcapping": 2.0},
    "cohere": {"logit_scale": 0.0625},
}
"""Models of text that change the logits of their head, which a LLaVA around them does not."""


@table("text", SCALED)
def test_a_tower_that_would_scale_logits_alone_runs_by_the_whole_models_class(text: str, tmp_path: Path) -> None:
    whole = build("llava_next", text_config=tiny_config(text, _FAR, **SCALED[text]))
    whole.save_pretrained(tmp_path)
    model = load_model(str(tmp_path), CPU)
    torch.testing.assert_close(logits_of(model), logits_of(whole), rtol=1e-4, atol=1e-4)
    assert type(load_empty(str(tmp_path), CPU)).__name__ == type(model).__name__ == type(whole).__name__


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    """transformers would go on with random ones."""
    build("llava").save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in stored if "language_model" in name and "q_proj" in name)
    del stored[lost]
    save_file(stored, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"the checkpoint lacks .*q_proj"):
        load_model(str(tmp_path), CPU)
