"""FP8 is exact for what it is: `tree` decodes what the oracle decodes from the same numbers, one value at a time.

A number at an edge between two numbers of FP8 goes to one side or the other by the last bit of the sum that it is. In
float64 that does not happen, and the law of test_exactness.py holds as it stands; attention is torch's in both, which
alone computes in float64 throughout. In float32, how much it moves is measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hpd_core.config import EngineConfig
from hpd_core.layers.fp8 import Fp8Linear, quantize_model

from .families import FAMILIES, MOST_USED, build_model
from .helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from .native import WAYS

IN_FLOAT64: dict[str, Any] = {"attention": "eager", "layers": "transformers"}
# Without experts and softcap.
LINEAR = tuple(family for family in FAMILIES if family not in ("qwen3_moe", "gpt_oss", "gemma2"))
# Deviations of the logits, and tokens in a hundred. Tiny random models feel one number that goes to the other side much
# more than trained ones. Measured: 0.02 and 1.
WORST_BEHIND, FLIP_SHARE = 0.2, 0.05


def build(family: str, dtype: torch.dtype) -> Any:
    model = build_model(family).to(dtype)
    quantize_model(model)
    return model


def build_oracle(family: str) -> Any:
    oracle = build(family, torch.float64)
    oracle.set_attn_implementation("sdpa")
    return oracle


@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=() if each in MOST_USED else pytest.mark.full) for each in LINEAR]
)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str, layout: str) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=6) for _ in range(6)]
    config = EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64, **IN_FLOAT64)
    prompts = decode(build(family, torch.float64), cases, endings, config)
    oracle = build_oracle(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@pytest.mark.parametrize("way", WAYS)
def test_float32_is_near_the_oracle(way: str) -> None:
    """By whoever's layers: ours for CPUs call the model's linear layers, and take none of FP8 for a plain one."""
    rng = np.random.default_rng(9)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    num_tokens = num_flips = 0
    for family, num_linear in (*((each, 21) for each in MOST_USED), ("glm4", 18)):
        cases = [random_case(rng, "tree", prefixes, branches=4, k_max=6) for _ in range(8)]
        model = build(family, torch.float32)
        config = EngineConfig(max_tokens_per_step=64, attention=way)
        prompts = decode(model, cases, endings, config)
        assert sum(isinstance(module, Fp8Linear) for module in model.modules()) == num_linear
        oracle = build(family, torch.float32)
        for case, prompt in zip(cases, prompts, strict=True):
            forced = case.forced(oracle, endings, prompt.tokens)
            for value, end in zip(forced, prompt.ends, strict=True):
                if end.chosen is not None:
                    continue
                behind = [value.behind(index, token) for index, token in enumerate(end.tokens)]
                assert max(behind) < WORST_BEHIND
                num_flips += sum(each > 0 for each in behind)
                num_tokens += len(end.tokens)
    print(f"{way}: {num_flips} of {num_tokens} tokens are not the oracle's")
    assert num_tokens > 150
    assert num_flips / num_tokens < FLIP_SHARE
