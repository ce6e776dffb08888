"""Keys that are 'auto' are those that the model has learned to be asked with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import transformers as tf

from hpd_core import AutoregressiveBaseline, Engine, EngineConfig, PromptTemplate
from hpd_core.models.adapter_folder import AdapterRecord
from hpd_core.models.loading import load_tokenizer
from tests.core.engines import answers
from tests.core.models.test_adapters import train
from tests.core.products import SCHEMAS, products

SHORT = PromptTemplate(keys="short")
CPU: dict[str, Any] = {"device": "cpu", "dtype": "float32", "max_value_tokens": 8}


def record(keys: Literal["full", "short"]) -> AdapterRecord:
    return AdapterRecord(
        base_model="tiny",
        base_revision=None,
        layout="tree",
        prompt_hash=PromptTemplate(keys=keys).hash,
        keys=keys,
        max_value_tokens=8,
        stack_size=6,
    )


@pytest.fixture(scope="module")
def adapter(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("adapter")
    train(tf.AutoModelForCausalLM.from_pretrained(tiny_model_dir), folder)
    record("short").write(folder)
    return str(folder)


def test_an_adapter_is_asked_as_it_was_trained(adapter: str, tiny_model_dir: Path) -> None:
    found = {}
    for keys in ("auto", "short", "full"):
        config = EngineConfig(**CPU, prompt=PromptTemplate(keys=keys))
        with Engine.from_pretrained(str(tiny_model_dir), config, adapter=adapter) as engine:
            found[keys] = answers(engine.extract(products(12), SCHEMAS)), engine.prompt_hash, engine.config.prompt
            assert bool(engine.notes) == (keys == "full"), "who asks otherwise is told"
    assert found["auto"] == found["short"] != found["full"]
    assert found["auto"][1] == SHORT.rendered_hash(load_tokenizer(str(tiny_model_dir), config))
    with AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU), adapter=adapter) as baseline:
        assert baseline.config.prompt.keys == "full", "it writes keys itself"
