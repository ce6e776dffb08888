"""Rotary embeddings that change with the length of a text: exact up to where they do, and refused beyond."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import transformers as tf

from hpd_core import EngineConfig
from hpd_core.models.description import max_positions
from tests.core.helpers import (
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
    without_constraints,
)
from tests.tables import table

_LIMIT = 64
_SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-3,
}
_FACTORS = {"short_factor": [1.0 + 0.2 * i for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, **more}


def _longrope(config: Any, **more: Any) -> Any:
    rope = _rope("longrope", original_max_position_embeddings=_LIMIT, **_FACTORS, **more)
    sizes = _SIZES if config is not tf.Phi3Config else _SIZES | {"original_max_position_embeddings": _LIMIT}
    return config(**sizes, rope_parameters=rope)


MODELS: dict[str, Any] = {
    "phi3": lambda: _longrope(tf.Phi3Config),
    "llama": lambda: _longrope(tf.LlamaConfig),
    "phimoe": lambda: _longrope(tf.PhimoeConfig, long_mscale=1.3, short_mscale=1.1),
    "dynamic": lambda: tf.LlamaConfig(
        **{**_SIZES, "max_position_embeddings": _LIMIT}, rope_parameters=_rope("dynamic")
    ),
}


def build(name: str, **more: Any) -> Any:
    torch.manual_seed(0)
    config = MODELS[name]()
    config.update(more)
    model = tf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return model.float()


@torch.inference_mode()
def first_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """Of a text's first tokens, in a forward of all of it."""
    logits: torch.Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :40]
    return logits


@table("name", MODELS)
def test_the_limit_is_where_earlier_tokens_change(name: str) -> None:
    """Beyond it, a plain forward answers anew for all that has been read: nothing could be kept."""
    model = build(name)
    assert max_positions(model.config) == _LIMIT
    ids = random_ids(np.random.default_rng(0), _LIMIT + 1, _LIMIT + 1)
    short, full, beyond = (first_logits(model, ids[:size]) for size in (50, _LIMIT, _LIMIT + 1))
    assert (short - full).abs().max() < 1e-4 * full.std()
    assert (short - beyond).abs().max() > 1e-2 * full.std()
    assert (first_logits(model, ids[:50]) - short).abs().max() < 1e-4 * full.std(), "it goes back"


@table("name", MODELS)
def test_up_to_the_limit_it_is_exact(name: str) -> None:
    rng = np.random.default_rng(3)
    endings = random_endings(rng, share=0.05)
    prefix = random_ids(rng, 20, 20)
    cases = [without_constraints(random_case(rng, "tree", [prefix], 3, k_max=9, document=30)) for _ in range(5)]
    assert all(case.prompt().layout.num_positions <= _LIMIT for case in cases)
    oracle = build(name)
    prompts = decode(copy.deepcopy(oracle), cases, endings, EngineConfig(max_tokens_per_step=64))
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
