"""Which models work, which are refused, and why."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from hpd_core import Engine, EngineConfig, ModelError, Record
from hpd_core.models.loading import load_model, load_tokenizer
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

CPU = {"device": "cpu", "dtype": "float32"}


def save(folder: Path, config: Any, *, weights: bool) -> str:
    if weights:
        tf.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    else:
        config.save_pretrained(folder)
    answering_tokenizer().save_pretrained(folder)
    return str(folder)


# Refused by their config alone: nobody waits for the weights of a model that cannot work.
BY_CONFIG: dict[str, tuple[Any, str]] = {
    "inkling": (lambda: tf.InklingTextConfig(vocab_size=420), "hear from every distance"),
    "deepseek_v4": (lambda: tf.DeepseekV4Config(vocab_size=420), "Take DeepSeek V3.2"),
    # It does not say how much it picks.
    "qwen4_exp": (lambda: tf.Qwen4ExpTextConfig(vocab_size=420), "layers of type indexed_attention"),
    "t5": (
        lambda: tf.T5Config(vocab_size=420, d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2),
        "decoder-only",
    ),
}


@table("family", BY_CONFIG)
def test_refused_by_config_with_the_reason(family: str, tmp_path: Path) -> None:
    make, reason = BY_CONFIG[family]
    folder = save(tmp_path, make(), weights=False)
    with pytest.raises(ModelError, match=reason):
        Engine.from_pretrained(folder, EngineConfig(**CPU))


# Where the model comes from.


def test_pickled_weights_are_not_loaded(tmp_path: Path) -> None:
    model = answering_model(answering_tokenizer())
    model.config.save_pretrained(tmp_path)
    answering_tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        Engine.from_pretrained(str(tmp_path), EngineConfig(**CPU))


def test_code_that_comes_with_a_model_does_not_run(tmp_path: Path) -> None:
    folder = Path(save(tmp_path / "model", answering_model(answering_tokenizer()).config, weights=True))
    witness = tmp_path / "it-ran"
    code = f"from pathlib import Path\nPath({str(witness)!r}).touch()\n"
    code += "from transformers import LlamaConfig as C, LlamaForCausalLM as M\nclass OwnC(C):\n    model_type='own'\n"
    (folder / "own.py").write_text(code + "class OwnM(M):\n    config_class = OwnC\n")
    text = (folder / "config.json").read_text().replace('"model_type": "llama"', '"model_type": "own"')
    auto = '{"auto_map": {"AutoConfig": "own.OwnC", "AutoModelForCausalLM": "own.OwnM"},'
    (folder / "config.json").write_text(text.replace("{", auto, 1))
    with pytest.raises(ModelError):
        Engine.from_pretrained(str(folder), EngineConfig(**CPU))
    assert not witness.exists()


def test_code_that_would_replace_known_classes_does_not_run(tmp_path: Path, tiny_model_dir: Path) -> None:
    """transformers prefers such code as soon as it is trusted; untrusted, its own classes load the model."""
    folder, witness = tmp_path / "model", tmp_path / "it-ran"
    shutil.copytree(tiny_model_dir, folder)
    code = f"from pathlib import Path\nPath({str(witness)!r}).touch()\n"
    code += "from transformers import LlamaForCausalLM as OwnM, PreTrainedTokenizerFast as OwnT\n"
    (folder / "own.py").write_text(code)
    for name, auto in (
        ("config.json", {"AutoModelForCausalLM": "own.OwnM"}),
        ("tokenizer_config.json", {"AutoTokenizer": [None, "own.OwnT"]}),
    ):
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**data, "auto_map": auto}))
    with contextlib.suppress(ModelError):
        Engine.from_pretrained(str(folder), EngineConfig(**CPU)).close()
    assert not witness.exists()


# How far a model's positions reach.


# Precision.


@table("quantization", ["nf4", "int8"])
def test_quantized_weights_run_and_products_do_not_touch_each_other(quantization: Any, tiny_model_dir: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = EngineConfig(**CPU, quantization=quantization, max_value_tokens=8)
    model = load_model(str(tiny_model_dir), config)
    kinds = {type(module).__name__ for module in model.modules()}
    assert {"nf4": "Linear4bit", "int8": "Linear8bitLt"}[quantization] in kinds
    for module in model.modules():
        if type(module).__name__ == "Linear8bitLt":
            assert module.state.threshold == 0.0
    # An outlier in one row: with a threshold it would change how all rows are computed.
    records = products(8)
    loud = Record("loud", "Shoes", {"t": "red " * 200 + "!" * 50})
    with Engine(model, load_tokenizer(str(tiny_model_dir), config), config) as engine:
        assert engine.describe()["quantization"] == quantization
        among = engine.extract([loud, *records, loud], SCHEMAS)[1:-1]
        alone = [engine.extract([record], SCHEMAS)[0] for record in records]
    for one, other in zip(alone, among, strict=True):
        found = [(v.raw, v.status, v.num_tokens) for v in one.values.values()]
        assert found == [(v.raw, v.status, v.num_tokens) for v in other.values.values()]
