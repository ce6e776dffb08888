"""Windows that are longer than any text of the proof: who does not obey them is found all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hpd_core import Engine, EngineConfig, ModelError
from tests.core.families import build_model
from tests.tables import table
from tests.tiny_model import answering_tokenizer

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
