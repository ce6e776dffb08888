"""Windows that are longer than any text of the proof: who does not obey them is found all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hpd_core import Engine, EngineConfig, ModelError
from hpd_core.models.reaches import SHORT, shortened
from tests.core.families import build_model
from tests.tables import table
from tests.tiny_model import answering_tokenizer

CPU = EngineConfig(device="cpu", dtype="float32")
_WINDOW = 1000


def build(**sizes: Any) -> Any:
    return build_model("gemma2", sliding_window=_WINDOW, vocab_size=420, **sizes)


@table("dtype", ["float32", "bfloat16"])
def test_a_model_that_is_not_told_of_its_window_is_refused(dtype: str) -> None:
    """Its own forward hides by a mask what our attention should hide by a number."""
    model = build().to(getattr(torch, dtype))
    for layer in model.model.layers:
        layer.self_attn.sliding_window = None
    with pytest.raises(ModelError, match=f"gemma2 models do not obey sliding_window of {_WINDOW} in steered attention"):
        Engine(model, answering_tokenizer(), EngineConfig(device="cpu", dtype=dtype))
    assert model.config.sliding_window == _WINDOW


def test_a_model_that_obeys_is_what_it_was() -> None:
    model = build()
    Engine(model, answering_tokenizer(), CPU).close()
    windows = [model.config.sliding_window, model.model.layers[0].self_attn.sliding_window]
    assert windows == [_WINDOW, _WINDOW]


def test_what_is_short_already_stays() -> None:
    model = build_model("gemma2")
    before = model.config.sliding_window
    assert before < SHORT
    with shortened(model) as settings:
        assert settings == []
        assert model.config.sliding_window == before
