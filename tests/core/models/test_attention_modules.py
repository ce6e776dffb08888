"""Families that attend by code of their own, or lose what their attention is called with: each equals the oracle."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.layout import Branch
from hpd_core.models.steering import attach
from tests.core.helpers import TreeCase, decode, random_endings, random_ids
from tests.core.native import EVERY_WAY

from .own_attention import ALIBI, CONFIGS, WITHOUT_MASKS, build, check

_MOST_USED = ("gptj", "bloom", "falcon", "stablelm")
_FAMILIES = [pytest.param(name, marks=() if name in _MOST_USED else pytest.mark.full) for name in CONFIGS]


@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", _FAMILIES)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str, layout: str) -> None:
    if layout == "stacked" and family in WITHOUT_MASKS:
        pytest.skip("its own forward cannot be the oracle")
    check(family, layout, EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64))


@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("family", [*ALIBI, "gpt_neo", "falcon"])
@pytest.mark.usefixtures("poison")
def test_every_way_to_attend(family: str, way: Any) -> None:
    check(family, "tree", EngineConfig(max_prompts_per_cohort=2, max_tokens_per_step=17, attention=way))


def test_who_attends_in_a_way_that_nobody_has_described_is_refused() -> None:
    config = tf.CpmAntConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, dim_head=12, dim_ff=64)
    with pytest.raises(ModelError, match="cpmant models attend by code of their own"):
        attach(tf.AutoModelForCausalLM.from_config(config))


@pytest.mark.parametrize("way", EVERY_WAY)
def test_in_half_precision_a_bias_far_into_a_text_is_not_rounded_with_its_scores(way: Any) -> None:
    """It is hundreds there, and differs by less than one from key to key."""
    model = build("mpt")
    rng = np.random.default_rng(3)
    case = TreeCase([], random_ids(rng, 900, 900), [Branch(random_ids(rng, 2, 2), 1) for _ in range(4)])
    endings = random_endings(rng)
    config = EngineConfig(attention=way, max_value_tokens=1)
    (prompt,) = decode(copy.deepcopy(model).to(torch.bfloat16), [case], endings, config)
    expected = case.forced(model, endings, prompt.tokens)
    wanted = [
        float(each.logits[0].log_softmax(-1)[tokens[0]]) for each, tokens in zip(expected, prompt.tokens, strict=True)
    ]
    np.testing.assert_allclose([logprobs[0] for logprobs in prompt.logprobs], wanted, atol=0.1)
