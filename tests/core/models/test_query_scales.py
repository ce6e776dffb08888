"""Llama 4 scales some layers' queries by position: in packed rows as in a text by itself."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.ministral3 import modeling_ministral3

from hpd_core import EngineConfig, ModelError
from hpd_core.attention.dispatch import current_batch
from hpd_core.decoding.decoder import Decoder
from hpd_core.families import attention_methods
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach, verify
from hpd_core.text.endings import Endings
from hpd_core.training.loss import attach_training, collate
from tests.core.helpers import (
    LOGPROB_TOLERANCE,
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
    without_constraints,
)
from tests.core.sweep.outcome import build
from tests.core.sweep.tokenizer import tiny_tokenizer
from tests.core.training.test_loss import expected_logprobs, target_logprobs, to_example
from tests.tables import table

_FLOOR = 8


def llama4() -> Any:
    """Whose queries are scaled anew behind `_FLOOR` tokens each."""
    model = build("llama4_text", 4096)
    model.config.floor_scale = _FLOOR
    for layer in model.model.layers:
        layer.self_attn.floor_scale, layer.self_attn.attn_scale = _FLOOR, 1.0
    return model


@table("layout", ["tree", "stacked"])
def test_decoding_and_training_count_positions(layout: str) -> None:
    rng = np.random.default_rng(3)
    endings = random_endings(rng)
    prefix = random_ids(rng, 9, 14)
    cases = [without_constraints(random_case(rng, layout, [prefix], branches=3, k_max=6)) for _ in range(4)]
    oracle = llama4()
    model = copy.deepcopy(oracle)
    attach(model)
    prompts = decode(model, cases, endings, EngineConfig(max_tokens_per_step=64, layout=layout))
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
    taught = copy.deepcopy(oracle)
    attach_training(taught)
    found = target_logprobs(taught, collate([to_example(prompt) for prompt in prompts]))
    expected = np.concatenate([expected_logprobs(prompt) for prompt in prompts])
    np.testing.assert_allclose(found, expected, atol=LOGPROB_TOLERANCE)


def prove(model: Any) -> None:
    """As when it is loaded."""
    config, endings = EngineConfig(), Endings.none(model.config.vocab_size)
    attach(model)
    verify(model, tiny_tokenizer(), Decoder(model, endings, config, cache_shape(model)))


def test_llama_4_that_counts_along_the_row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no text of the proof has the thousands of tokens that are scaled alike."""
    model = build("llama4_text", 4096)
    for layer in model.model.layers:
        layer.self_attn.floor_scale, layer.self_attn.attn_scale = 8192, 1.0
    prove(copy.deepcopy(model))
    monkeypatch.setattr(attention_methods, "steer_query_scales", lambda _: None)
    with pytest.raises(ModelError, match=r"llama4_text models do not obey .*floor_scale of 8192"):
        prove(model)


def test_ministral_3_that_does_not_hear_of_positions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("ministral3", 4096)
    model.config.rope_parameters |= {"llama_4_scaling_beta": 1.0, "original_max_position_embeddings": 8192}
    prove(copy.deepcopy(model))
    scale = modeling_ministral3.get_llama_4_attn_scale

    def deaf(positions: torch.Tensor, *settings: Any) -> torch.Tensor:
        heard: torch.Tensor = scale(positions if current_batch() is None else 0 * positions, *settings)
        return heard

    monkeypatch.setattr(modeling_ministral3, "get_llama_4_attn_scale", deaf)
    with pytest.raises(ModelError, match=r"ministral3 models do not obey .*original_max_position_embeddings of 8192"):
        prove(model)
