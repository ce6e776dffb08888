"""Tiny random models of families that attend by code of their own, or lose what their attention is called with."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import transformers as tf

from hpd_core.config import EngineConfig
from tests.core.families import VOCABULARY
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids

_WINDOW = 7
_HEADS = {"n_embd": 48, "n_layer": 3, "n_head": 4}
_FALCON: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_kv_heads": 2, "hidden_dropout": 0.0
}  # fmt: skip
_MPT_ATTENTION = {"clip_qkv": 1.5, "softmax_scale": 0.2}

CONFIGS: dict[str, Any] = {
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
    # Each token adds to its scores what its value says.
    "doge": lambda: tf.DogeConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64
    ),
    "doge-window": lambda: tf.DogeConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, sliding_window=_WINDOW
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

ALIBI = ("bloom", "mpt", "falcon-rw", "falcon-alibi-multi-query")
WITHOUT_MASKS = ("openai-gpt",)
"""Whose own forward takes no mask: it cannot be the oracle of `stacked`."""


def build(family: str) -> Any:
    """A tiny model in fp32; equal names give equal weights."""
    torch.manual_seed(0)
    config = CONFIGS[family]()
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


def check(family: str, layout: str, config: EngineConfig, count: int = 5, k_max: int = 6) -> None:
    """Decodes some random prompts and compares them with the oracle's."""
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=k_max) for _ in range(count)]
    model = build(family)
    oracle = copy.deepcopy(model)
    prompts = decode(model, cases, endings, config)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
