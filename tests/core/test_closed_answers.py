"""Closed answers are chosen exactly: the engine's member is the one that a forward for each of them finds likeliest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpd_core.config import EngineConfig
from hpd_core.layout import Branch, Members

from .families import FAMILY_PARAMETERS, build_model
from .helpers import ROOTS, TreeCase, assert_equals_oracle, decode, random_endings, random_ids
from .native import EVERY_WAY


def closed_cases(count: int, max_fed: int | None = None, seed: int = 0) -> list[TreeCase]:
    """Prompts whose values are nearly all chosen among members."""
    rng = np.random.default_rng(seed)
    prefixes = [random_ids(rng, 5, 9), random_ids(rng, 2, 4)]
    cases = []
    for _ in range(count):
        branches = [Branch(random_ids(rng, 1, 4), 6)]
        for root in rng.choice(list(ROOTS), 4).tolist():
            num_nodes = ROOTS[root][1]
            most = num_nodes - 1 if max_fed is None else min(max_fed, num_nodes - 1)
            branches.append(Branch(random_ids(rng, 1, 4), 6, members=Members(root, num_nodes, most)))
        cases.append(TreeCase(prefixes[int(rng.integers(2))], random_ids(rng, 1, 25), branches))
    return cases


@pytest.mark.parametrize("family", FAMILY_PARAMETERS)
@pytest.mark.usefixtures("poison")
def test_every_family(family: str) -> None:
    cases, endings = closed_cases(4), random_endings(np.random.default_rng(0))
    prompts = decode(build_model(family), cases, endings, EngineConfig())
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_tokens_per_step": 1, "max_prompts_per_cohort": 3},
        {"max_tokens_per_step": 60, "max_prompts_per_cohort": 6, "overlap_steps": True},
        {"max_tokens_per_step": 300, "max_prompts_per_cohort": 8, "max_draft_tokens_per_step": 300},
        {"max_tokens_per_step": 120, "max_cached_tokens": 1},
    ],
)
@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.usefixtures("poison")
def test_every_schedule_and_way_to_attend(way: str, settings: dict[str, Any]) -> None:
    """Values begin in different steps of a prefill, wait for room, and move along when cohorts shrink or merge."""
    cases, endings = closed_cases(24), random_endings(np.random.default_rng(0), 0.03)
    prompts = decode(build_model("llama"), cases, endings, EngineConfig(attention=way, **settings))
    oracle = build_model("llama")
    for case, prompt in list(zip(cases, prompts, strict=True))[::4]:
        assert_equals_oracle(oracle, case, prompt, endings)
