"""Models of a well-known shape with random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from typer.testing import CliRunner

from bench.random_model import SHAPES, app, write_random_model
from hpd_core import Engine
from tests.core.engines import config
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_tokenizer

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16, "vocab_size": 600}


@table(
    ("name", "billions"),
    # What the names promise: Qwen's model cards give 0.6B, 1.7B and 8.2B parameters.
    [("qwen3-0.6b", 0.60), ("qwen3-1.7b", 1.72), ("qwen3-8b", 8.19)],
)
def test_a_shape_has_the_weights_of_its_name(name: str, billions: float) -> None:
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**SHAPES[name]))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e9 == pytest.approx(billions, abs=0.005)


def test_the_engine_takes_it(tmp_path: Path) -> None:
    tokenizer = answering_tokenizer()
    count = write_random_model(SHAPES["qwen3-8b"] | SMALL, tokenizer, tmp_path / "model")
    assert count == sum(
        p.numel() for p in transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").parameters()
    )
    with Engine.from_pretrained(str(tmp_path / "model"), config(dtype="auto")) as engine:
        results = engine.extract(products(3), SCHEMAS)
    assert all(value.num_tokens for result in results for value in result.values.values())


def test_a_vocabulary_that_is_too_small_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokens, the model 10"):
        write_random_model(SHAPES["qwen3-8b"] | {"vocab_size": 10}, answering_tokenizer(), tmp_path)


def test_an_unknown_shape_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["llama-9b", "--out", str(tmp_path / "m")])
    assert result.exit_code == 2
    assert "Error: no shape 'llama-9b'; there are qwen3-0.6b" in result.output
    assert not (tmp_path / "m").exists()
