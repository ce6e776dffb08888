"""What runs when: budgets, cohorts, the prefix cache. Answers do not depend on it; memory and speed do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention.kv_cache import CachePool
from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import CohortCache
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings, Read
from tests.core.families import VOCABULARY, build_model
from tests.core.helpers import (
    TreeCase,
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
    without_members,
)
from tests.core.native import EVERY_WAY
from tests.examples import examples
from tests.tables import table

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


@table("layout", ["tree", "stacked"])
@table("budget", [7, 4096])
def test_a_value_that_does_not_close_takes_exactly_its_limit(layout: str, budget: int) -> None:
    rng = np.random.default_rng(2)
    cases = [random_case(rng, layout, [random_ids(rng, 3, 6)], branches=5, k_max=7) for _ in range(5)]
    config = EngineConfig(max_tokens_per_step=budget)
    cases = [without_members(case) if isinstance(case, TreeCase) else case for case in cases]
    for item in decode(build_model("llama"), cases, NEVER, config):
        assert [len(tokens) for tokens in item.tokens] == item.layout.max_new_tokens.tolist()
        assert [len(logprobs) for logprobs in item.logprobs] == item.layout.max_new_tokens.tolist()
        assert item.closed == [False] * item.layout.num_branches


@table("layout", ["tree", "stacked"])
def test_a_value_that_closes_at_its_limit_is_closed(layout: str) -> None:
    rng = np.random.default_rng(2)
    case = random_case(rng, layout, [[]], branches=4, k_max=1)
    item = decode(build_model("llama"), [case], NEVER.also(range(VOCABULARY)), EngineConfig())[0]
    assert item.closed == [True] * item.layout.num_branches
    assert all(len(tokens) == 1 for tokens in item.tokens)


@table(("layout", "length"), [("tree", 3), ("stacked", 5)])
def test_a_value_that_nobody_sees_ends_when_all_of_it_is_read(layout: str, length: int) -> None:
    case = random_case(np.random.default_rng(2), layout, [[]], branches=4, k_max=5)
    # Whatever the tokens: a string begins, is closed, and has its comma.
    behind = NEVER.behind.copy()
    behind[[Read.NOTHING, Read.NOTHING_TYPED]] = Read.STRING
    behind[Read.STRING], behind[Read.WHOLE] = Read.WHOLE, Read.ENDED
    item = decode(build_model("llama"), [case], replace(NEVER, behind=behind), EngineConfig())[0]
    assert [len(tokens) for tokens in item.tokens] == [min(length, limit) for limit in item.layout.max_new_tokens]
    assert item.closed == [layout == "tree" and limit >= length for limit in item.layout.max_new_tokens]
    assert layout == "stacked" or {True, False} == set(item.closed)


@table("family", ["granite", "gemma3", "gpt_oss", "qwen3"])
@table("layout", ["tree", "stacked"])
def test_eager_attention_equals_the_oracle(family: str, layout: str) -> None:
    """Granite scales its scores by a number of its own."""
    rng = np.random.default_rng(4)
    endings = random_endings(rng)
    cases = [random_case(rng, layout, [random_ids(rng, 3, 6)], branches=3, k_max=5) for _ in range(3)]
    prompts = decode(build_model(family), cases, endings, EngineConfig(attention="eager"))
    oracle = build_model(family)
    for case, item in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, item, endings)


@torch.inference_mode()
def test_merging_many_cohorts_at_different_steps() -> None:
    rng = np.random.default_rng(9)
    endings = random_endings(rng, share=0.05)
    decoder = Decoder(LLAMA, endings, EngineConfig(), cache_shape(LLAMA))
    groups = [
        [TreeCase([], random_ids(rng, 3, 20), [Branch(random_ids(rng, 1, 3), 12) for _ in range(count)])]
        * (1 + count % 2)
        for count in (1, 4, 2, 3, 5)
    ]
    prompts = [[case.prompt() for case in group] for group in groups]
    pool = CachePool(cache_shape(LLAMA), decoder.pool.order)
    cohorts = [Cohort.admit(group, [None] * len(group), pool) for group in prompts]

    def step(running: list[Cohort]) -> None:
        inputs = decoder._gather(running)
        decoder._scatter(running, inputs, decoder._forward(inputs).fetch())

    for index, cohort in enumerate(cohorts):
        for _ in range(1 + index % 3):
            step([cohort])
        cohort.retire()
    merged = Cohort.merge([cohort for cohort in cohorts if not cohort.is_finished])
    while not merged.is_finished:
        step([merged])
        merged.retire()
    oracle = build_model("llama")
    for group, items in zip(groups, prompts, strict=True):
        for case, item in zip(group, items, strict=True):
            assert_equals_oracle(oracle, case, item, endings)


def num_tokens(report: StepReport) -> int:
    return sum(count for cohort in report.cohorts for _, count in cohort)


def test_a_step_keeps_to_its_budget() -> None:
    reports = run([prompt(300, [2]), prompt(200, [2], seed=1)], max_tokens_per_step=32)
    fed = [num_tokens(report) for report in reports]
    assert max(fed) <= 32 + 2, "a column of two prompts may exceed it"
    assert len(reports) >= 500 / 34


def test_a_cohort_has_no_more_prompts_than_allowed() -> None:
    reports = run([prompt(5, [3], seed=n) for n in range(20)], max_prompts_per_cohort=3)
    assert max(len(cohort) for report in reports for cohort in report.cohorts) == 3


def test_admission_waits_while_the_cache_is_full() -> None:
    """A prompt counts with its values as long as they may become: 30 + 2 + 4 tokens."""
    items = [prompt(30, [4], seed=n) for n in range(6)]
    running = [sum(map(len, report.cohorts)) for report in run(items, max_cached_tokens=2 * 36)]
    assert max(running) == 2
    running = [sum(map(len, report.cohorts)) for report in run(items[:3], max_cached_tokens=1)]
    assert max(running) == 1
    assert len(run([prompt(30, [4], seed=n) for n in range(6)])) < 10


@pytest.mark.parametrize("attention", EVERY_WAY)
def test_a_shared_prefix_takes_its_slots_once(attention: str) -> None:
    """Room for one prefix of 40 and five prompts of 16 with their values."""
    prefix = random_ids(np.random.default_rng(1), 40, 40)
    items = [prompt(10, [4], prefix=prefix, seed=n) for n in range(8)]
    reports = run(items, attention=attention, max_cached_tokens=40 + 5 * 16 + 11)
    assert max(sum(map(len, report.cohorts)) for report in reports[1:]) == 5


def test_what_is_held_by_running_cohorts_counts_behind_its_eviction() -> None:
    rng = np.random.default_rng(1)
    first, second = random_ids(rng, 40, 40), random_ids(rng, 40, 40)
    items = [prompt(10, [20], prefix=prefix, seed=n) for n, prefix in enumerate([first, first, second, second])]
    reports = run(items, max_cached_prefixes=1, max_cached_tokens=40 + 40 + 3 * 12)
    running = [sum(map(len, report.cohorts)) for report in reports]
    assert max(running) == 3, "two prompts, and the second prefix as it is computed"


def test_finished_values_take_no_part_in_a_step() -> None:
    reports = run([prompt(5, [1, 3, 6]), prompt(5, [2], seed=1)])
    assert [num_tokens(report) for report in reports] == [18, 3, 2, 1, 1, 1]
    second = [sum(count for item, count in report.cohorts[0] if item.layout.num_branches == 1) for report in reports]
    assert second[2:] == [0] * 4, "a finished prompt is charged for tokens of the others"


def test_small_rests_are_merged() -> None:
    limits = [2, 2, 12, 12]
    items = [prompt(6, [limits[n % 4]], seed=n) for n in range(8)]
    reports = run(items, max_prompts_per_cohort=4)
    assert max(len(report.cohorts) for report in reports) == 2
    assert [len(report.cohorts) for report in reports[-6:]] == [1] * 6


def test_a_prefix_is_computed_once() -> None:
    rng = np.random.default_rng(1)
    first, second = random_ids(rng, 6, 6), random_ids(rng, 6, 6)
    items = [prompt(4, [2], prefix=(first, second)[n % 2], seed=n) for n in range(10)]
    computed = [item.prefix_key for report in run(items) for item in report.computed_prefixes]
    assert sorted(computed) == sorted([tuple(first), tuple(second)])


def test_the_least_recently_used_prefix_goes_first() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (random_ids(rng, 6, 6) for _ in range(3))
    decoder = Decoder(LLAMA, NEVER, EngineConfig(max_cached_prefixes=2), cache_shape(LLAMA))
    computed = []
    for prefix in (a, b, a, c, a, b):
        decoder.add([prompt(4, [2], prefix=prefix)])
        reports = []
        while decoder.has_work:
            reports.append(decoder.step())
        computed.append([item.prefix_key for report in reports for item in report.computed_prefixes])
    assert computed == [[tuple(a)], [tuple(b)], [], [tuple(c)], [], [tuple(b)]]


def prefixes_of(cohort: list[tuple[Prompt, int]]) -> set[Any]:
    return {item.prefix_key for item, _ in cohort if item.layout.num_branches}


def test_prompts_of_several_submissions_run_with_those_of_their_prefix() -> None:
    """Four submissions of three prefixes: a cohort of four prompts has one prefix, not all three."""
    rng = np.random.default_rng(1)
    prefixes = [random_ids(rng, 6, 6) for _ in range(3)]
    items = [prompt(4, [2], prefix=prefix, seed=n) for n in range(4) for prefix in prefixes]
    reports = run(items, max_prompts_per_cohort=4, max_tokens_per_step=24)
    admitted = [prefixes_of(cohort) for report in reports for cohort in report.cohorts]
    assert all(len(found) <= 1 for found in admitted)
    order = [item for report in reports for item in report.finished]
    assert [item.prefix_key for item in order] == [tuple(prefix) for prefix in prefixes for _ in range(4)]


def test_only_what_is_in_sight_overtakes() -> None:
    rng = np.random.default_rng(1)
    a, b = random_ids(rng, 6, 6), random_ids(rng, 6, 6)
    in_sight = 4 * 2
    items = [prompt(4, [1], prefix=a), *(prompt(4, [1], prefix=b, seed=n) for n in range(in_sight - 1))]
    last = prompt(4, [1], prefix=a, seed=99)
    reports = run([*items, last], max_prompts_per_cohort=2, max_tokens_per_step=12)
    order = [item for report in reports for item in report.finished]
    assert order.index(last) == len(items), "it was out of the oldest one's sight"
    reports = run([*(again(item) for item in items[:-1]), last := again(last)], max_prompts_per_cohort=2)
    assert last in next(report.finished for report in reports if report.finished)


def again(item: Prompt) -> Prompt:
    return Prompt(item.layout, item.prefix_key)


def test_a_stream_of_one_prefix_does_not_keep_another_waiting() -> None:
    rng = np.random.default_rng(1)
    busy, rare = random_ids(rng, 6, 6), random_ids(rng, 6, 6)
    decoder = Decoder(LLAMA, NEVER, EngineConfig(max_prompts_per_cohort=2, max_tokens_per_step=16), cache_shape(LLAMA))
    decoder.add(prompt(4, [1], prefix=busy, seed=n) for n in range(6))
    waiting = prompt(4, [1], prefix=rare)
    decoder.add([waiting])
    finished: list[Prompt] = []
    for n in range(40):
        decoder.add([prompt(4, [1], prefix=busy, seed=100 + n)])
        finished += decoder.step().finished
        if waiting in finished:
            break
    assert waiting in finished
    assert len(finished) <= 6 + 1 + 1, "no more than those before it, and those of its own cohort"


@settings(max_examples=examples(40))
@given(data=st.data())
def test_submissions_that_arrive_at_any_time_are_answered_as_alone(data: st.DataObject) -> None:
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


def test_clear_drops_everything_but_the_prefixes() -> None:
    rng = np.random.default_rng(1)
    prefix = random_ids(rng, 6, 6)
    decoder = Decoder(LLAMA, NEVER, EngineConfig(), cache_shape(LLAMA))
    decoder.add([prompt(4, [5], prefix=prefix), prompt(9, [5])])
    decoder.step()
    decoder.step()
    decoder.clear()
    assert not decoder.has_work
    decoder.add([prompt(4, [5], prefix=prefix)])
    reports = [decoder.step() for _ in range(5)]
    assert not decoder.has_work
    assert [item for report in reports for item in report.computed_prefixes] == []


@torch.inference_mode()
def test_after_a_failed_merge_nobody_shares_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that fails while cohorts merge: some were given back, some not; what comes next starts anew."""
    config = EngineConfig(max_prompts_per_cohort=4)
    decoder = Decoder(LLAMA, NEVER, config, cache_shape(LLAMA))
    copy, merge = CohortCache._copy, Cohort.merge
    copies = 0

    def failing(cache: CohortCache, *given: Any) -> None:
        nonlocal copies
        copies += 1
        if copies == 2:
            raise RuntimeError("made up")
        copy(cache, *given)

    def failing_merge(cohorts: Sequence[Cohort]) -> Cohort:
        nonlocal copies
        copies = 0
        with monkeypatch.context() as here:
            here.setattr(CohortCache, "_copy", failing)
            return merge(cohorts)

    def run(decoder: Decoder) -> None:
        while decoder.has_work:
            decoder.step()

    monkeypatch.setattr(Cohort, "merge", failing_merge)
    decoder.add([prompt(6, [limit], seed=50 + n) for n, limit in enumerate([3, 3, 12, 12, 4, 4, 12, 12, 3, 3, 3, 3])])
    with pytest.raises(RuntimeError, match="made up"):
        run(decoder)
    monkeypatch.setattr(Cohort, "merge", merge)
    decoder.clear()

    def answers(decoder: Decoder) -> list[list[list[int]]]:
        prompts = [prompt(6, [9], seed=100 + n) for n in range(16)]
        decoder.add(prompts)
        run(decoder)
        return [each.tokens for each in prompts]

    assert answers(decoder) == answers(Decoder(LLAMA, NEVER, config, cache_shape(LLAMA)))
    assert decoder.pool.num_used == 0
