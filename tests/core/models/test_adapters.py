"""LoRA adapters: what is answered with one is what peft itself computes, and nothing of it is left out."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import IA3Config, LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from hpd_core import EngineConfig, ModelError
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.adapters import add_adapter
from hpd_core.models.loading import load_model
from tests.core.families import VOCABULARY, build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

CPU: dict[str, Any] = {"device": "cpu", "dtype": "float32", "max_value_tokens": 8}
ATTENTION = ["q_proj", "v_proj"]


def train(model: Any, folder: Path, seed: int = 0, **options: Any) -> Any:
    """peft's own model with random LoRA matrices that change every answer, saved to `folder`; `model` is left alone."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION, "task_type": "CAUSAL_LM"} | options
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(**settings))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    adapted.save_pretrained(folder, save_embedding_layers=False)
    return adapted.eval()


def use(model: Any, folder: Path, merge: bool | None = None, base_revision: str | None = None) -> Any:
    """A copy of `model` with the adapter in it."""
    adapted = copy.deepcopy(model)
    with open_adapter(str(folder)) as adapter:
        add_adapter(adapted, adapter, base_revision, merge)
    return adapted


@torch.inference_mode()
def logits(model: Any, vocabulary: int = VOCABULARY) -> Tensor:
    ids = torch.randint(3, vocabulary, (2, 24), generator=torch.Generator().manual_seed(1))
    rows: Tensor = model(input_ids=ids, use_cache=False).logits
    return rows


def lora_modules(model: Any) -> list[str]:
    return [name for name, _ in model.named_modules() if "lora_" in name]


@pytest.fixture
def base(tiny_model_dir: Path) -> Any:
    return load_model(str(tiny_model_dir), EngineConfig(**CPU))


@pytest.fixture
def adapter(base: Any, tmp_path: Path) -> Path:
    train(base, tmp_path / "adapter")
    return tmp_path / "adapter"


# What is computed.

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("llama", {}),
    "every linear layer": ("gemma3", {"target_modules": "all-linear"}),
    "fused layers": ("phi3", {"target_modules": ["qkv_proj", "gate_up_proj"]}),
    "gpt_neox": ("gpt_neox", {"target_modules": ["query_key_value", "dense_4h_to_h"]}),
    "mixture of experts": ("qwen3_moe", {"target_modules": ["q_proj", "o_proj"]}),
    "patterns": ("qwen2", {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}, "use_rslora": True}),
    "some layers": ("olmo2", {"layers_to_transform": [0, 2]}),
    "dora": ("qwen3", {"use_dora": True, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]}),
    "a whole head": ("llama", {"modules_to_save": ["lm_head"]}),
    "whole embeddings and norms": ("qwen2", {"modules_to_save": ["embed_tokens", "norm", "k_proj"]}),
    "embeddings": ("llama", {"target_modules": ["embed_tokens", "lm_head", "up_proj"]}),
}


@table("merge", [True, False])
@table("shape", SHAPES)
def test_logits_are_those_of_peft(shape: str, merge: bool, tmp_path: Path) -> None:
    family, options = SHAPES[shape]
    model = build_model(family)
    expected = logits(train(model, tmp_path, **options))
    adapted = use(model, tmp_path, merge)
    assert bool(lora_modules(adapted)) is not merge
    scale = float(expected.std())
    torch.testing.assert_close(logits(adapted), expected, atol=5e-4 * scale, rtol=1e-4)
    assert float((expected - logits(model)).abs().mean()) > 0.05 * scale, "the adapter changes nothing worth testing"


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_moe"])
def test_decoding_with_an_adapter_equals_the_oracle(family: str, layout: str, merge: bool, tmp_path: Path) -> None:
    """The oracle is a plain forward of peft's model; the engine decodes with ours."""
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=6) for _ in range(5)]
    model = build_model(family)
    oracle = train(model, tmp_path)
    config = EngineConfig(max_prompts_per_cohort=3, max_tokens_per_step=64)
    prompts = decode(use(model, tmp_path, merge), cases, endings, config)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle.get_base_model(), case, prompt, endings)
    assert [p.tokens for p in prompts] != [p.tokens for p in decode(model, cases, endings, config)]


def test_tied_embeddings_are_not_changed_through_the_head(tmp_path: Path) -> None:
    model = answering_model(answering_tokenizer(), tie_word_embeddings=True)
    vocabulary = model.config.vocab_size
    assert model.lm_head.weight is model.model.embed_tokens.weight
    expected = logits(train(model, tmp_path, target_modules=["lm_head", "q_proj"]), vocabulary)
    merged = use(model, tmp_path)
    torch.testing.assert_close(logits(merged, vocabulary), expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(merged.model.embed_tokens.weight, model.model.embed_tokens.weight)


def test_dropout_is_for_training_only(base: Any, tmp_path: Path) -> None:
    expected = logits(train(base, tmp_path, lora_dropout=0.5))
    beside = use(base, tmp_path, merge=False)
    assert not any(module.training for module in beside.modules())
    torch.testing.assert_close(logits(beside), expected, atol=1e-4, rtol=1e-4)


# From a name to an engine.


# What it was trained for.


# What is refused: in one line, with the way out.


def refusal(adapter: Path | str, base: Any) -> str:
    with pytest.raises(ModelError) as caught:
        use(base, Path(adapter))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_another_method_than_lora(base: Any, tmp_path: Path) -> None:
    config = IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    get_peft_model(copy.deepcopy(base), config).save_pretrained(tmp_path)
    assert "it is of type 'IA3'; train it as LORA" in refusal(tmp_path, base)


VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "task": ({"task_type": "SEQ_CLS"}, "it is for the task 'SEQ_CLS'"),
    "dora": ({"use_dora": True}, "it targets layers without having weights for them"),
    "bias": ({"bias": "lora_only"}, "it uses bias, which is not supported"),
    "whole layers": ({"modules_to_save": ["lm_head"]}, "it has no weights for the whole layer lm_head"),
    "parameters": ({"target_parameters": ["mlp.up_proj.weight"]}, "it uses target_parameters,"),
    "of a peft to come": ({"lora_of_tomorrow": {"depth": 2}}, "it uses lora_of_tomorrow,"),
    "changed weights": ({"init_lora_weights": "pissa"}, "begun with init_lora_weights='pissa'"),
    "no rank": ({"r": 0}, "`r` should be a positive integer"),
    "nonsense": ({"r": "four"}, "it does not fit this llama model"),
    "a damaged pattern": ({"target_modules": "*_proj"}, "it does not fit this llama model: nothing to repeat"),
    "a list for a mapping": ({"rank_pattern": [8]}, "it does not fit this llama model"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_not_plain_lora(variant: str, adapter: Path, base: Any) -> None:
    change, reason = VARIANTS[variant]
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert reason in refusal(adapter, base)


MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "other names": ({"layers": 2}, {"target_modules": ["query_key_value"]}, "not found in the base model"),
    "wider": ({"hidden_size": 128, "head_dim": 16}, {}, "size mismatch for model.layers.0.self_attn.q_proj.lora_"),
    "deeper": ({"num_hidden_layers": 3}, {}, "4 of its 12 weights find no layer, such as "),
    "shallower": ({"num_hidden_layers": 1}, {}, "it targets layers without having weights for them, such as "),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_an_adapter_of_another_model(misfit: str, base: Any, tmp_path: Path) -> None:
    shape, options, reason = MISFITS[misfit]
    other = build_model("gpt_neox") if "layers" in shape else answering_model(answering_tokenizer(), **shape)
    train(other, tmp_path, **options)
    message = refusal(tmp_path, base)
    assert "it does not fit this llama model: " in message
    assert reason in message
    assert message.endswith("; load the model that it was trained on")


def test_weights_that_are_no_lora_or_not_finite(adapter: Path, base: Any) -> None:
    path = adapter / "adapter_model.safetensors"
    weights = load_file(path)
    save_file(weights | {"base_model.model.lm_head.weight": base.lm_head.weight.detach().clone()}, path)
    assert "it holds more than LoRA matrices, such as base_model.model.lm_head.weight; save it" in refusal(
        adapter, base
    )
    key = next(iter(weights))
    save_file(weights | {key: torch.full_like(weights[key], float("nan"))}, path)
    assert f"its weight {key} is not finite" in refusal(adapter, base)
