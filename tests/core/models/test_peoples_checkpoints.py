"""Checkpoints as people have them: in several files, with tied heads, odd settings of generation, added tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpd_core import Engine, EngineConfig, ModelError, RecordResult
from tests.core.products import SCHEMAS, products
from tests.tiny_model import answering_model, answering_tokenizer

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
