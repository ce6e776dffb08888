"""Values that are chosen among members, in a cohort: who is fed in which order, what waits, what leaves the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.decoder import StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, Members
from tests.core.families import build_model
from tests.core.helpers import (
    ROOTS,
    TreeCase,
    decode,
    random_endings,
    random_ids,
)
from tests.tables import table

LARGEST = max(ROOTS)


def branch(root: int, key: int = 5, most: int | None = None) -> Branch:
    num_nodes = ROOTS[root][1]
    return Branch([key], 6, members=Members(root, num_nodes, num_nodes - 1 if most is None else most))


def closed_cases(count: int, most: int | None = None) -> list[TreeCase]:
    rng = np.random.default_rng(4)
    return [
        TreeCase([], random_ids(rng, 1, 12), [branch(LARGEST, 3 + b, most) for b in range(4)] + [Branch([9], 8)])
        for _ in range(count)
    ]


def step_sizes(reports: list[StepReport]) -> list[int]:
    return [sum(count for cohort in report.cohorts for _, count in cohort) for report in reports]


def test_nodes_wait_where_a_step_would_be_too_large() -> None:
    cases, endings = closed_cases(12), random_endings(np.random.default_rng(0), 0.02)
    free: list[StepReport] = []
    bound: list[StepReport] = []
    plain = decode(build_model("llama"), cases, endings, EngineConfig(), reports=free)
    small = EngineConfig(max_tokens_per_step=100)
    found = decode(build_model("llama"), cases, endings, small, reports=bound)
    assert max(step_sizes(free)) > 300
    assert max(step_sizes(bound)) <= 100 + ROOTS[LARGEST][1], "one value's nodes are fed at once"
    assert [prompt.tokens for prompt in found] == [prompt.tokens for prompt in plain]
    assert [prompt.num_scored_tokens for prompt in found] == [prompt.num_scored_tokens for prompt in plain]


@table("way", ["native", "eager"])
@table("most", [3, 10, None])
def test_no_prompt_takes_more_of_the_cache_than_is_kept_for_it(
    way: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with every step there is less of it that is still to come than was taken."""
    kept: dict[Prompt, list[int]] = {}
    accept = Cohort.accept

    def noting(cohort: Cohort, *given: Any) -> int:
        found = accept(cohort, *given)
        left = cohort._values.num_left + (cohort._prefill.num_left if cohort._prefill else 0)
        for prompt, columns in zip(cohort.prompts, (cohort._cache.used + left).tolist(), strict=True):
            kept.setdefault(prompt, [prompt.most_own_tokens]).append(columns)
        return found

    monkeypatch.setattr(Cohort, "accept", noting)
    cases, endings = closed_cases(12, most), random_endings(np.random.default_rng(0), 0.0)
    settings = EngineConfig(attention=way, max_prompts_per_cohort=4)
    decode(build_model("llama"), cases, endings, settings)
    assert len(kept) == len(cases)
    assert all((np.diff(columns) <= 0).all() for columns in kept.values())
