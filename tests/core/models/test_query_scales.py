"""Llama 4 scales some layers' queries by position: in packed rows as in a text by itself."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from hpd_core import EngineConfig
from hpd_core.models.steering import attach
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
from tests.core.training.test_loss import expected_logprobs, target_logprobs, to_example

_FLOOR = 8


def llama4() -> Any:
    """Whose queries are scaled anew behind `_FLOOR` tokens each."""
    model = build("llama4_text", 4096)
    model.config.floor_scale = _FLOOR
    for layer in model.model.layers:
        layer.self_attn.floor_scale, layer.self_attn.attn_scale = _FLOOR, 1.0
    return model


@pytest.mark.parametrize("layout", ["tree", "stacked"])
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
