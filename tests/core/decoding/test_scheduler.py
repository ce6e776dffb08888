"""What runs when: budgets, cohorts, the prefix cache. Answers do not depend on it; memory and speed do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.config import EngineConfig
from hpd_core.decoding import prompt as prompt_module
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings
from tests.core.families import VOCABULARY, build_model
from tests.core.helpers import (
    TreeCase,
    assert_equals_oracle,
    random_endings,
    random_ids,
)
from tests.examples import examples

NEVER = Endings.none(VOCABULARY)
LLAMA = build_model("llama")
attach(LLAMA)
ORACLE = build_model("llama")


def run(prompts: list[Prompt], **options: Any) -> list[StepReport]:
    decoder = Decoder(LLAMA, NEVER, EngineConfig(**options), cache_shape(LLAMA))
    decoder.add(prompts)
    reports = []
    while decoder.has_work:
        reports.append(decoder.step())
    return reports


def prompt(length: int, limits: list[int], prefix: list[int] | None = None, seed: int = 0) -> Prompt:
    rng = np.random.default_rng([seed, length])
    own = random_ids(rng, length, length)
    branches = [Branch(random_ids(rng, 2, 2), limit) for limit in limits]
    return Prompt(tree_layout(prefix or [], own, branches), tuple(prefix or []))


def test_admission_waits_while_the_cache_is_full() -> None:
    """A prompt counts with its value: 30 + 2 + 4 tokens. A part of the cache is left for longer ones."""
    items = [prompt(30, [4], seed=n) for n in range(6)]
    running = [sum(map(len, report.cohorts)) for report in run(items, max_cached_tokens=2 * 36 + 3)]
    assert max(running) == 2
    running = [sum(map(len, report.cohorts)) for report in run(items[:3], max_cached_tokens=1)]
    assert max(running) == 1
    assert len(run([prompt(30, [4], seed=n) for n in range(6)])) < 10


def test_the_youngest_give_way_to_values_that_are_long() -> None:
    """Four columns are reserved for each value, which takes 60: the cache holds four prompts at first alone."""
    items = [prompt(1, [60], seed=n) for n in range(4)]
    reports = run(items, max_cached_tokens=100, max_prompts_per_cohort=1)
    fed = [[item for cohort in report.cohorts for item, _ in cohort] for report in reports]
    assert max(map(len, fed)) == 4
    began = {item: sum(item in now and item not in before for before, now in pairwise([[], *fed])) for item in items}
    assert [began[item] for item in items] == [1, 2, 2, 2], "the oldest goes on, the others begin once more"
    assert [item.was_displaced for item in items] == [False, True, True, True]
    alone = [prompt(1, [60], seed=n) for n in range(4)]
    run(alone, max_cached_tokens=10**6)
    assert [item.tokens for item in items] == [item.tokens for item in alone]


@settings(max_examples=examples(40))
@given(data=st.data(), usual=st.sampled_from([1, 8]))
def test_submissions_that_arrive_at_any_time_are_answered_as_alone(data: st.DataObject, usual: int) -> None:
    """And fairly: the oldest that waits is in every cohort that is admitted."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 2, 6) for _ in range(3)] + [[]]
    config = EngineConfig(
        max_prompts_per_cohort=data.draw(st.integers(1, 4)),
        max_tokens_per_step=data.draw(st.sampled_from([8, 30, 4096])),
        max_cached_prefixes=data.draw(st.integers(1, 3)),
        max_cached_tokens=data.draw(st.sampled_from([1, 120, 10**6])),
    )
    decoder = Decoder(LLAMA, endings, config, cache_shape(LLAMA))
    submissions = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=5))
    cases: list[TreeCase] = []
    prompts: list[Prompt] = []
    started: set[Prompt] = set()

    def step() -> None:
        waiting = [item for item in prompts if item not in started]
        fed = [item for cohort in decoder.step().cohorts for item, _ in cohort if item.layout.num_branches]
        new = set(fed) - started
        assert not new or waiting[0] in new
        started.update(new)

    with patch.object(prompt_module, "USUAL_COLUMNS", usual):
        for chosen in submissions:
            arrived = [
                TreeCase(prefixes[n], random_ids(rng, 1, 9), [Branch(random_ids(rng, 1, 3), 5) for _ in range(2)])
                for n in chosen
            ]
            cases += arrived
            prompts += (items := [case.prompt() for case in arrived])
            decoder.add(items)
            for _ in range(data.draw(st.integers(0, 4))):
                if decoder.has_work:
                    step()
        while decoder.has_work:
            step()
    for case, item in zip(cases, prompts, strict=True):
        assert_equals_oracle(ORACLE, case, item, endings)
    assert decoder.pool.num_used == 0
