"""Models with layers beside attention decode what the oracle decodes, token for token, in fp32."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core.config import EngineConfig
from tests.core.helpers import (
    TreeCase,
    assert_equals_oracle,
    decode,
    random_branches,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.native import WAYS
from tests.core.test_exactness import SCHEDULES, check_schedule
from tests.examples import examples
from tests.tables import table

from .hybrids import HYBRID_PARAMETERS, HYBRIDS, build_hybrid


@pytest.mark.parametrize("family", HYBRID_PARAMETERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str, way: str) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, "tree", prefixes, branches=4, k_max=6) for _ in range(6)]
    config = EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64, attention=way)
    prompts = decode(build_hybrid(family), cases, endings, config)
    oracle = build_hybrid(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(family=st.sampled_from(HYBRIDS), **SCHEDULES)
@pytest.mark.usefixtures("poison")
def test_any_schedule_equals_oracle(family: str, **schedule: Any) -> None:
    """As test_exactness.py has it: any budget and cohort size, prefixes evicted or shared or empty."""
    check_schedule(partial(build_hybrid, family), "tree", **schedule)


@table("family", ["lfm2", "qwen3_5", "falcon_h1"])
@pytest.mark.usefixtures("poison")
def test_a_long_document_runs_beside_short_ones(family: str) -> None:
    """In one step, as rectangles of their own."""
    rng = np.random.default_rng(13)
    endings = random_endings(rng)
    prefix, sizes = random_ids(rng, 7, 7), (5, 250, 9, 90, 5)
    cases = [TreeCase(prefix, random_ids(rng, size, size), random_branches(rng, 3, 4)) for size in sizes]
    prompts = decode(build_hybrid(family), cases, endings, EngineConfig(max_tokens_per_step=512))
    oracle = build_hybrid(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
