"""The law of the project: the engine decodes what the oracles decode, token for token, in fp32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core.config import EngineConfig
from tests.examples import examples
from tests.tables import table

from .families import BOTH_WAYS, FAMILIES, FAMILIES_AND_LAYOUTS, READING_ALL, build_model
from .helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from .native import WAYS

LAYOUTS = ("tree", "stacked")
ANY_FAMILY_AND_LAYOUT = st.one_of(
    st.tuples(st.sampled_from(FAMILIES), st.sampled_from(LAYOUTS)),
    st.tuples(st.sampled_from(READING_ALL), st.just(BOTH_WAYS)),
)


@pytest.mark.parametrize(("family", "layout"), FAMILIES_AND_LAYOUTS)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str, layout: str) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=6) for _ in range(6)]
    config = EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64)
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@st.composite
def engine_configs(draw: st.DrawFn) -> EngineConfig:
    return EngineConfig(
        max_tokens_per_step=draw(st.sampled_from([1, 5, 17, 64, 300, 4096])),
        max_prompts_per_cohort=draw(st.sampled_from([1, 2, 3, 8, 32])),
        max_cached_tokens=draw(st.sampled_from([1, 200, 100_000])),
        max_cached_prefixes=draw(st.sampled_from([1, 2, 64])),
        attention=draw(st.sampled_from(WAYS)),
        layers=draw(st.sampled_from(["auto", "transformers"])),
        overlap_steps=draw(st.booleans()),
    )


def check_schedule(
    build: Callable[[], Any],
    layout: str,
    seed: int,
    num_cases: int,
    branches: int,
    k_max: int,
    num_prefixes: int,
    config: EngineConfig,
) -> None:
    """Check records in front, in the middle and at the end."""
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=float(rng.choice([0.02, 0.2, 0.6])))
    prefixes = [random_ids(rng, 0, 12) for _ in range(num_prefixes)]
    cases = [random_case(rng, layout, prefixes, branches, k_max) for _ in range(num_cases)]
    prompts = decode(build(), cases, endings, config)
    oracle = build()
    for index in {0, num_cases // 2, num_cases - 1}:
        assert_equals_oracle(oracle, cases[index], prompts[index], endings)


SCHEDULES: dict[str, Any] = {
    "seed": st.integers(0, 2**32 - 1),
    "num_cases": st.integers(1, 12),
    "branches": st.sampled_from([1, 2, 5, 16]),
    "k_max": st.sampled_from([1, 3, 9]),
    "num_prefixes": st.integers(1, 4),
    "config": engine_configs(),
}
"""What `check_schedule` is called with, the model and the layout apart."""


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(kind=ANY_FAMILY_AND_LAYOUT, **SCHEDULES)
@pytest.mark.usefixtures("poison")
def test_any_schedule_equals_oracle(kind: tuple[str, str], **schedule: Any) -> None:
    """Records in any number and order, any budget and cohort size, prefixes evicted or shared or empty."""
    family, layout = kind
    check_schedule(partial(build_model, family), layout, **schedule)


@table("layout", ["tree", BOTH_WAYS])
def test_tree_answer_is_the_same_alone_and_among_hundreds(layout: str) -> None:
    rng = np.random.default_rng(3)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 5, 9) for _ in range(7)]
    cases = [random_case(rng, layout, prefixes, branches=5, k_max=8) for _ in range(300)]
    model = build_model("qwen3")
    together = decode(model, cases, endings, EngineConfig(max_tokens_per_step=512))
    for index in range(0, 300, 29):
        alone = decode(model, [cases[index]], endings, EngineConfig())[0]
        assert alone.tokens == together[index].tokens
        np.testing.assert_allclose(np.concatenate(alone.logprobs), np.concatenate(together[index].logprobs), atol=1e-4)
