"""The proof at load, in half precision: who obeys is taken, however far rounding moves it; who does not is found."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hpd_core import Engine, EngineConfig, ModelError
from hpd_core.decoding import next_token
from hpd_core.models import text_towers
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build
from tests.core.sweep.tokenizer import tiny_tokenizer
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

HALF = EngineConfig(device="cpu", dtype="bfloat16")


def half(name: str) -> Any:
    model = build(name, REACHES["loose"])
    if text_towers.multimodal_class(model.config) is not None:
        model = text_towers.alone(model)
    return model.bfloat16()


@pytest.mark.parametrize("name", ["granitemoe_swa", "kimi_linear", "zamba2", "video_llava"])
def test_rounding_that_makes_another_text_of_it_is_no_disobedience(name: str) -> None:
    """Experts are chosen by the last bit here, or wide weights amplify it: log-probabilities move by several."""
    Engine(half(name), tiny_tokenizer(), HALF).close()


def test_who_ignores_positions_is_found_in_half_precision() -> None:
    model = answering_model(answering_tokenizer()).bfloat16()
    forward = model.forward

    def without_positions(*args: Any, position_ids: Any = None, **options: Any) -> Any:
        return forward(*args, **options)

    model.forward = without_positions
    with pytest.raises(ModelError, match="llama models do not obey"):
        Engine(model, answering_tokenizer(), HALF)


@table("dtype", [torch.float32, torch.float16])
def test_weights_that_give_no_numbers_are_no_disobedience(dtype: torch.dtype) -> None:
    """Damaged, or too large for the dtype: the masks have no part in it."""
    model = answering_model(answering_tokenizer())
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 3] = math.nan if dtype == torch.float32 else 1e30
    with pytest.raises(ModelError, match=r"own numbers are not finite.*try another engine\.dtype"):
        Engine(model.to(dtype), answering_tokenizer(), EngineConfig(device="cpu"))


def test_who_chooses_another_token_than_the_likeliest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the probability of what it chose is right."""

    def second(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best = logits.float().topk(2, dim=-1)
        return best.indices[:, 1], best.values[:, 1], logits.float().logsumexp(-1)

    for name in ("choose", "likeliest"):
        monkeypatch.setattr(next_token, name, second)
    with pytest.raises(ModelError, match=r"do not obey .* to the likeliest"):
        Engine(answering_model(answering_tokenizer()), answering_tokenizer(), EngineConfig(device="cpu"))
