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

from hpd_core.attention.alibi import EXTRA_SIZE, with_key_bias
from hpd_core.attention.dispatch import current_batch
from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.models import attention_modules
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach, own_attention
from tests.core.families import VOCABULARY
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.native import EVERY_WAY

_WINDOW = 7
_HEADS = {"n_embd": 48, "n_layer": 3, "n_head": 4}
_FALCON: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_kv_heads": 2, "hidden_dropout": 0.0
}  # fmt: skip
_MPT_ATTENTION = {"clip_qkv": 1.5, "softmax_scale": 0.2}

_CONFIGS: dict[str, Any] = {
    "gptj": lambda: tf.GPTJConfig(**_HEADS, rotary_dim=8),
    "codegen": lambda: tf.CodeGenConfig(**_HEADS, rotary_dim=8, n_ctx=64),
    "openai-gpt": lambda: tf.OpenAIGPTConfig(**_HEADS),
    "gpt_neo": lambda: tf.GPTNeoConfig(
        hidden_size=48,
        num_layers=3,
        num_heads=4,
        window_size=_WINDOW,
        attention_types=[[["global", "local", "local"], 1]],
    ),
    "gpt_neox_japanese": lambda: tf.GPTNeoXJapaneseConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=4),
    "xglm": lambda: tf.XGLMConfig(d_model=48, num_layers=3, attention_heads=4, ffn_dim=64),
    # Slopes of a number of heads that is no power of two are of two series.
    "bloom": lambda: tf.BloomConfig(hidden_size=48, n_layer=3, n_head=6),
    "mpt": lambda: tf.MptConfig(d_model=48, n_layers=3, n_heads=6, attn_config=_MPT_ATTENTION),
    "falcon": lambda: tf.FalconConfig(**_FALCON),
    "falcon-40b": lambda: tf.FalconConfig(**_FALCON, new_decoder_architecture=True),
    "falcon-rw": lambda: tf.FalconConfig(
        **{**_FALCON, "num_kv_heads": 4}, alibi=True, multi_query=False, parallel_attn=False, bias=True
    ),
    "falcon-alibi-multi-query": lambda: tf.FalconConfig(**_FALCON, alibi=True),
    "stablelm": lambda: tf.StableLmConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64
    ),
    "biogpt": lambda: tf.BioGptConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64
    ),
    "nemotron": lambda: tf.NemotronConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64
    ),
    "jetmoe": lambda: tf.JetMoeConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_key_value_heads=2,
        kv_channels=12,
        intermediate_size=64,
        num_local_experts=4,
    ),
}  # fmt: skip

_ALIBI = ("bloom", "mpt", "falcon-rw", "falcon-alibi-multi-query")
_WITHOUT_POSITIONS = (*_ALIBI, "openai-gpt", "gpt_neo")
"""Whose own forward takes no positions, or no mask: it cannot be the oracle of `stacked`."""

_MOST_USED = ("gptj", "bloom", "falcon", "stablelm")
_FAMILIES = [pytest.param(name, marks=() if name in _MOST_USED else pytest.mark.full) for name in _CONFIGS]


def build(family: str) -> Any:
    """A tiny model in fp32; equal names give equal weights."""
    torch.manual_seed(0)
    config = _CONFIGS[family]()
    config.update({"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})
    config._experts_implementation = "eager"
    # Falcon adds ALiBi twice where its attention is `eager`.
    own = "sdpa" if family.startswith("falcon") else "eager"
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=own)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
            else:  # all alike at first: who takes the wrong one is to be found
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", _FAMILIES)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str, layout: str) -> None:
    if layout == "stacked" and family in _WITHOUT_POSITIONS:
        pytest.skip("its own forward cannot be the oracle")
    _check(family, layout, EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64))


@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("family", [*_ALIBI, "gpt_neo", "falcon"])
@pytest.mark.usefixtures("poison")
def test_every_way_to_attend(family: str, way: Any) -> None:
    _check(family, "tree", EngineConfig(max_prompts_per_cohort=2, max_tokens_per_step=17, attention=way))


def _check(family: str, layout: str, config: EngineConfig) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=6) for _ in range(5)]
    model = build(family)
    oracle = copy.deepcopy(model)
    prompts = decode(model, cases, endings, config)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


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


def test_shared_heads_are_stored_once() -> None:
    assert cache_shape(build("falcon")).num_kv_heads == 1
    assert cache_shape(build("falcon-40b")).num_kv_heads == 2
    assert cache_shape(build("falcon-rw")).key_size == 12 + EXTRA_SIZE


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


def test_every_description_is_of_a_class_that_there_is() -> None:
    """The table names classes of transformers, which may rename them."""
    known = {type(module).__name__ for name in _CONFIGS for module in attention_modules.described(build(name))}
    assert known == set(attention_modules._DESCRIPTIONS)
