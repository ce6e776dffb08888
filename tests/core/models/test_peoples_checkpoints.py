"""Checkpoints as people have them: in several files, with tied heads, odd settings of generation, added tokens."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from hpd_core import Engine, EngineConfig, ModelError, RecordResult
from hpd_core.models import loading, quantized_checkpoint
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer, sentencepiece_tokenizer

CPU = EngineConfig(device="cpu", dtype="float32", max_value_tokens=6)


def change(folder: Path, name: str, **changes: Any) -> None:
    """Changes settings of a JSON file; None removes one."""
    path = folder / name
    settings = json.loads(path.read_text()) if path.exists() else {}
    settings.update(changes)
    path.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))


def answers(folder: Path) -> list[RecordResult]:
    with Engine.from_pretrained(str(folder), CPU) as engine:
        return engine.extract(products(4), SCHEMAS)


def texts(results: list[RecordResult]) -> list[dict[str, str | None]]:
    assert not [result.error for result in results if result.error]
    return [{name: value.text for name, value in result.values.items()} for result in results]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    tokenizer = answering_tokenizer()
    answering_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def expected(plain: Path) -> list[dict[str, str | None]]:
    return texts(answers(plain))


@pytest.fixture
def checkpoint(plain: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    for file in plain.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def _shards(folder: Path) -> None:
    tokenizer = answering_tokenizer()
    (folder / "model.safetensors").unlink()
    answering_model(tokenizer).save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def _without_metadata(folder: Path) -> None:
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")


def _without_end(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=None)
    change(folder, "generation_config.json", eos_token_id=None)


def _with_more_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors") | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


SAME: dict[str, Callable[[Path], None]] = {
    "shards": _shards,
    "no metadata": _without_metadata,
    "buffers of an older version": _with_more_weights,
    "no generation config": lambda folder: (folder / "generation_config.json").unlink(),
    "sampling": lambda folder: change(
        folder, "generation_config.json", do_sample=True, temperature=0.6, top_p=0.9, max_length=20
    ),
    "settings that do not go together": lambda folder: change(
        folder, "generation_config.json", do_sample=False, temperature=0.0, top_k=0
    ),
    "a list of ends": lambda folder: change(folder, "generation_config.json", eos_token_id=[2, 1]),
    "an end beyond the vocabulary": lambda folder: change(folder, "generation_config.json", eos_token_id=[2, 99_999]),
    "no end": _without_end,
    "a token before the text": lambda folder: change(folder, "tokenizer_config.json", bos_token="<|im_start|>"),
    "no class of a tokenizer": lambda folder: change(folder, "tokenizer_config.json", tokenizer_class=None),
    "the type of another time": lambda folder: change(folder, "config.json", dtype=None, torch_dtype="bfloat16"),
    "cache off": lambda folder: change(folder, "config.json", use_cache=False),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_answers_are_the_same(kind: str, checkpoint: Path, expected: list[dict[str, str | None]]) -> None:
    SAME[kind](checkpoint)
    assert texts(answers(checkpoint)) == expected


@table("has_head", [True, False])
def test_a_tied_head(has_head: bool, tmp_path: Path) -> None:
    """It may be stored twice, or with the embeddings alone."""
    tokenizer = answering_tokenizer()
    model = answering_model(tokenizer, tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    if has_head:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    else:
        assert "lm_head.weight" not in weights
    with Engine(model, tokenizer, CPU) as engine:
        loaded = texts(engine.extract(products(4), SCHEMAS))
    assert texts(answers(tmp_path)) == loaded


def test_added_tokens_beyond_the_vocabulary(checkpoint: Path) -> None:
    """No text of a product becomes one; a chat template that writes one is refused."""
    tokenizer = answering_tokenizer()
    tokenizer.add_tokens(["red", "running"])
    tokenizer.save_pretrained(checkpoint)
    assert texts(answers(checkpoint))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_start|>", "<|user|>")
    tokenizer.save_pretrained(checkpoint)
    with pytest.raises(ModelError, match=r"the chat template writes '<\|user\|>', which is token \d+"):
        answers(checkpoint)


def test_a_vocabulary_that_is_padded(checkpoint: Path) -> None:
    """Rows of the model that are no token are never answered."""
    tokenizer = answering_tokenizer()
    model = answering_model(tokenizer)
    model.resize_token_embeddings(len(tokenizer) + 61, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[len(tokenizer) :] = 50 * model.lm_head.weight[-len(tokenizer) - 61]
    model.save_pretrained(checkpoint)
    assert [set(each) for each in texts(answers(checkpoint))]


def test_a_tokenizer_like_llama_s(tmp_path: Path) -> None:
    tokenizer = sentencepiece_tokenizer()
    answering_model(tokenizer, eos_token_id=2).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert texts(answers(tmp_path))


def test_gpt_oss_as_it_is_published(tmp_path: Path) -> None:
    """Its experts are in MXFP4, which transformers puts into bfloat16 where it has no kernels for it."""
    tokenizer = answering_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = tf.GptOssConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        pad_token_id=0,
        eos_token_id=2,
    )
    tf.GptOssForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for key in [key for key in weights if key.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inside, outside = weights.pop(key).shape
        shape = (experts, outside, inside // 32)
        weights[f"{key}_blocks"] = torch.randint(0, 255, (*shape, 16), dtype=torch.uint8)
        weights[f"{key}_scales"] = torch.randint(122, 126, shape, dtype=torch.uint8)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    change(tmp_path, "config.json", quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": kept})
    assert texts(answers(tmp_path))


@pytest.mark.parametrize(
    "quantized",
    [
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        {"quant_method": "awq", "bits": 4, "group_size": 128},
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group"}}
            },
        },
    ],
    ids=lambda settings: settings["quant_method"],
)
def test_quantized_checkpoints_are_refused_by_name_where_their_package_is_missing(
    quantized: dict[str, Any], checkpoint: Path
) -> None:
    method = quantized["quant_method"]
    package = quantized_checkpoint.PACKAGES[method]
    if all(importlib.util.find_spec(name.replace("-", "_")) for name in package.split()):
        pytest.skip(f"{package} is here: test_quantized_checkpoints.py")
    change(checkpoint, "config.json", quantization_config=quantized)
    with pytest.raises(ModelError, match=rf"quantized by {method}.*pip install {package}, or .*nf4"):
        answers(checkpoint)


@pytest.mark.parametrize("method", ["gptq", "awq", "int-quantized", "pack-quantized"])
def test_layers_without_a_gradient_are_not_trained(method: str, checkpoint: Path) -> None:
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    of_tokens = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": weights}
    if method == "int-quantized":
        group["input_activations"] = of_tokens
    own = {"quant_method": method, "bits": 4, "group_size": 128}
    packed = {"quant_method": "compressed-tensors", "format": method, "config_groups": {"group_0": group}}
    change(checkpoint, "config.json", quantization_config=own if method in ("gptq", "awq") else packed)
    config = loading.load_config(str(checkpoint), CPU)
    if method == "pack-quantized":  # unpacked at load
        quantized_checkpoint.refuse_training(config)
        return
    with pytest.raises(ModelError, match=r"its layers have no gradient: train the model in bfloat16.*nf4"):
        quantized_checkpoint.refuse_training(config)


def _cut_off(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a copy that was cut off": (_cut_off, "not whole: copy it again"),
    "another vocabulary": (
        lambda folder: change(folder, "config.json", vocab_size=999),
        r"is \(407, 64\) in the checkpoint, and \(999, 64\) by its config.json",
    ),
    "a type that is wrong": (
        lambda folder: change(folder, "config.json", hidden_size="64"),
        "cannot load.*'hidden_size': TypeError: .*expected int",
    ),
    "a setting that nobody knows": (
        lambda folder: change(folder, "config.json", hidden_act="nope"),
        "cannot load.*KeyError: 'nope'",
    ),
    "a list for a table": (
        lambda folder: (folder / "config.json").write_text("[]"),
        "cannot load.*TypeError: .*must be a mapping",
    ),
    "an empty tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        "cannot load.*KeyError: 'added_tokens'",
    ),
    "an end in words": (
        lambda folder: change(folder, "generation_config.json", eos_token_id=[2, "</s>"]),
        r"eos_token_id is \[2, '</s>'\].*generation_config.json",
    ),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_is_an_error_in_words(kind: str, checkpoint: Path) -> None:
    spoil, said = UNREADABLE[kind]
    spoil(checkpoint)
    with pytest.raises(ModelError, match=said):
        answers(checkpoint)
