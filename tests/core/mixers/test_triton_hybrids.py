"""Layers beside attention where one launch attends for all cohorts, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from hpd_core.config import EngineConfig
from tests.core.helpers import (
    assert_equals_oracle,
    decode,
    new_decoder,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.triton import needs_interpreter

from .allocated_memory import unlike_prompts
from .hybrids import build_hybrid
from .test_hybrid_memory import Checked


@needs_interpreter
@pytest.mark.parametrize(
    "family",
    ["lfm2", "qwen3_5", *(pytest.param(name, marks=pytest.mark.full) for name in ("falcon_h1", "jamba", "minimax"))],
)
def test_family_equals_oracle(family: str) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, "tree", prefixes, branches=3, k_max=5) for _ in range(3)]
    config = EngineConfig(attention="triton", max_prompts_per_cohort=2, max_tokens_per_step=64)
    prompts = decode(build_hybrid(family), cases, endings, config)
    oracle = build_hybrid(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@needs_interpreter
def test_columns_are_counted_as_they_are_padded() -> None:
    """Keys and values of a prompt are as many as it has; columns beside them as many as the widest of its cohort."""
    prompts = unlike_prompts(np.random.default_rng(4), 10, 3)
    model = build_hybrid("lfm2")
    room = Checked(new_decoder(model, attention="triton", share_text=False)).room
    limit = 3 * max(map(room.for_prompt, prompts)) + 4 * room.trunk
    checked = Checked(new_decoder(model, attention="triton", share_text=False, max_cached_tokens=limit))
    checked.run(prompts)
    assert checked.most <= limit * checked.slot
