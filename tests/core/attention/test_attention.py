"""Attention by matrix products, in tiles, with prefixes that several prompts share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core.attention import kv_cache
from hpd_core.attention import plan as attention
from hpd_core.config import EngineConfig
from tests.core.families import build_model
from tests.core.helpers import (
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
)
from tests.examples import examples


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32 - 1),
    layout=st.sampled_from(["tree", "stacked"]),
    family=st.sampled_from(["llama", "mistral", "gemma2", "gemma3", "gpt_oss"]),
    tile=st.sampled_from([1, 50, 300, 5000]),
    cohort_size=st.sampled_from([1, 3, 8]),
    max_cached_prefixes=st.sampled_from([1, 3]),
    budget=st.sampled_from([9, 60, 4096]),
)
def test_any_tiling_equals_the_oracle(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    layout: str,
    family: str,
    tile: int,
    cohort_size: int,
    max_cached_prefixes: int,
    budget: int,
) -> None:
    """Several prefixes a cohort, one of them empty; windows that end inside a prefix; prefixes evicted while in use."""
    monkeypatch.setattr(attention, "TILE_SCORES", {"cpu": tile})
    monkeypatch.setattr(kv_cache, "UNUSED_FILL", 1e4)
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=0.1)
    prefixes = [[], random_ids(rng, 1, 4), random_ids(rng, 9, 15)]
    cases = [random_case(rng, layout, prefixes, branches=3, k_max=6) for _ in range(7)]
    config = EngineConfig(
        attention="eager",
        max_tokens_per_step=budget,
        max_prompts_per_cohort=cohort_size,
        max_cached_prefixes=max_cached_prefixes,
    )
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for case, prompt in list(zip(cases, prompts, strict=True))[::3]:
        assert_equals_oracle(oracle, case, prompt, endings)
