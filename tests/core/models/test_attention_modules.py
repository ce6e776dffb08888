"""Families that attend by code of their own, or lose what their attention is called with: each equals the oracle."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention.dispatch import current_batch
from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.layout import Branch
from hpd_core.models import attention_modules
from hpd_core.models.attention_modules import EXTRA_SIZE, with_key_bias
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach, own_attention
from tests.core.helpers import TreeCase, decode, random_endings, random_ids
from tests.core.native import EVERY_WAY

from .attention_families import ALIBI, CONFIGS, WITHOUT_MASKS, build, check

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


@pytest.mark.parametrize("family", ["gptj", "bloom", "mpt", "falcon-rw", "xglm"])
def test_by_itself_the_model_is_what_it_was(family: str) -> None:
    """Attached or copied, it attends by its own code where no decoder of ours runs it."""
    model, untouched = build(family), build(family)
    ids = torch.arange(3, 40)[None]
    attach(model)
    copied = copy.deepcopy(model)
    with torch.inference_mode():
        expected = untouched(input_ids=ids, use_cache=False).logits
        for attached in (model, copied):
            with own_attention(attached):
                torch.testing.assert_close(attached(input_ids=ids, use_cache=False).logits, expected)
    assert current_batch() is None


@pytest.mark.parametrize("family", ["gptj", "bloom", "mpt", "falcon", "falcon-rw", "xglm"])
def test_who_forgets_to_give_it_back_its_own_attention_is_told(family: str) -> None:
    """It makes no mask then, and would see what comes. However many engines have had it, it has one hook."""
    model = build(family)
    for _ in range(3):
        attach(model)
    assert sum(len(part._forward_pre_hooks) for part in model.modules()) <= 1
    for attached in (model, copy.deepcopy(model)):
        with pytest.raises(RuntimeError, match="nobody has said what the tokens attend to"):
            attached(input_ids=torch.arange(3, 40)[None], use_cache=False)


def test_shared_heads_are_stored_once() -> None:
    assert cache_shape(build("falcon")).layer.num_kv_heads == 1
    assert cache_shape(build("falcon-40b")).layer.num_kv_heads == 2
    assert cache_shape(build("falcon-rw")).layer.key_size == 12 + EXTRA_SIZE


def test_who_attends_in_a_way_that_nobody_has_described_is_refused() -> None:
    config = tf.CpmAntConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, dim_head=12, dim_ff=64)
    with pytest.raises(ModelError, match="cpmant models attend by code of their own"):
        attach(tf.AutoModelForCausalLM.from_config(config))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    scale=st.floats(0.03, 2),
    latest=st.sampled_from([1, 30, 3000]),
)
def test_scores_have_the_bias_of_their_keys(seed: int, dtype: torch.dtype, scale: float, latest: int) -> None:
    """With queries and keys of 0 nothing is left but the bias, as exact as products of the dtype are."""
    generator = torch.Generator().manual_seed(seed)
    bias = torch.rand(5, 3, generator=generator) * latest
    zeros = torch.zeros(1, 3, 5, 4, dtype=dtype)
    q, k = with_key_bias(zeros, zeros, bias, scale)
    scores = (q.double() @ k.double().transpose(2, 3) * scale)[0]
    error = {torch.float32: 2e-7, torch.bfloat16: 4e-5, torch.float16: 2e-6}[dtype]
    torch.testing.assert_close(scores, bias.T.double()[:, None].expand(3, 5, 5), rtol=error, atol=1e-4 * error)


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


def test_every_description_is_of_a_class_that_there_is() -> None:
    """The table names classes of transformers, which may rename them."""
    known = {type(module).__name__ for name in CONFIGS for module in attention_modules.described(build(name))}
    assert known == set(attention_modules._DESCRIPTIONS)
