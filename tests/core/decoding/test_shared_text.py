"""Documents that begin alike: their beginning is found, computed once, and changes no answer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core.attention.kv_cache import CacheBlock, CachePool
from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.shared_text import SharedText, shared_texts
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings
from tests.core.families import FAMILIES, FAMILY_PARAMETERS, VOCABULARY, build_model
from tests.core.helpers import (
    TRIES,
    TreeCase,
    assert_equals_oracle,
    decode,
    random_branches,
    random_endings,
    random_ids,
)
from tests.core.native import EVERY_WAY, WAYS
from tests.examples import examples

NEVER = Endings.none(VOCABULARY)
LLAMA = build_model("llama")
attach(LLAMA)
# The tree.


def found_texts(documents: list[list[int]], num_prefix_tokens: int = 0) -> list[tuple[list[int], list[int], int]]:
    """Of each node its tokens, its members, and the length of its parent."""
    arrays = [np.array(document, dtype=np.int64) for document in documents]
    nodes = shared_texts(range(len(documents)), arrays, num_prefix_tokens)
    return [
        (documents[node.members[0]][: node.length], sorted(node.members), node.parent.length if node.parent else 0)
        for node in nodes
    ]


def test_what_several_begin_with_is_one_node_and_what_fewer_do_one_below_it() -> None:
    common, longer = list(range(10, 30)), list(range(40, 60))
    documents = [[*common, 1], [9] * 30, [*common, *longer, 2], [*common, *longer], [*common, *longer, 70_000]]
    assert found_texts(documents) == [(common, [0, 2, 3, 4], 0), ([*common, *longer], [2, 3, 4], 20)]


@pytest.mark.parametrize(
    ("length", "members", "before", "is_worth"),
    [
        (7, 50, 0, False),
        (8, 2, 0, False),
        (8, 3, 0, True),
        (16, 2, 0, True),
        (60, 2, 900, True),
        (60, 2, 901 + 3 * 16, False),
        (60, 3, 901 + 3 * 16, True),
    ],
)
def test_a_node_saves_more_than_it_costs(length: int, members: int, before: int, is_worth: bool) -> None:
    documents = [[*range(length), 1000 + number] for number in range(members)]
    assert bool(found_texts(documents, before)) == is_worth


@settings(max_examples=examples(200))
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), max_size=4), max_size=8))
def test_the_tree_is_that_of_all_common_beginnings(runs: list[list[tuple[int, int]]]) -> None:
    """By looking at every beginning of every document."""
    documents = [[token for token, count in parts for _ in range(count)] for parts in runs]
    nodes = found_texts(documents)
    sharing: dict[tuple[int, ...], list[int]] = {}
    for number, document in enumerate(documents):
        for length in range(1, len(document) + 1):
            sharing.setdefault(tuple(document[:length]), []).append(number)
    for text, members, above in nodes:
        assert members == sharing[tuple(text)], "all that begin so"
        assert len(text) - above >= 8
        assert (len(members) - 1) * (len(text) - above) >= 16
        longer = [key for key in sharing if key[: len(text)] == tuple(text) and len(key) == len(text) + 1]
        assert all(len(sharing[key]) < len(members) for key in longer), "the longest that they have in common"
    # What is left to share would not be worth a node.
    for key, members in sharing.items():
        if any(sharing.get((*key, token)) == members for token in range(3)):
            continue
        above = max((len(text) for text, _, _ in nodes if tuple(text) == key[: len(text)]), default=0)
        assert len(key) - above < 8 or (len(members) - 1) * (len(key) - above) < 16


def test_a_thousand_documents_that_share_nothing_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first tokens are all that is compared."""
    rng = np.random.default_rng(1)
    documents = [np.concatenate([np.arange(7), [n], rng.integers(0, 150_000, 300)]) for n in range(1000)]

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("whole documents are compared")

    monkeypatch.setattr(np, "frombuffer", fail)
    assert shared_texts(range(1000), documents, 300) == []


# Exactness.


def variants(rng: np.random.Generator, prefixes: list[list[int]], num_families: int, most: int) -> list[TreeCase]:
    """Families of documents with a common beginning, some in families of families, twins too; shuffled."""
    cases = []
    for _ in range(num_families):
        prefix = prefixes[int(rng.integers(len(prefixes)))]
        common = random_ids(rng, 0, 40)
        below = [random_ids(rng, 0, 30) for _ in range(2)]
        for _ in range(int(rng.integers(1, most + 1))):
            own = random_ids(rng, 0 if prefix else 1, 9)
            document = [*common, *below[int(rng.integers(2))], *own]
            cases.append(TreeCase(prefix, document, random_branches(rng, int(rng.integers(1, 4)), 5)))
            if rng.random() < 0.2:
                cases.append(TreeCase(prefix, document, random_branches(rng, 2, 5)))
    return [cases[number] for number in rng.permutation(len(cases))]


def total(reports: list[StepReport]) -> int:
    return sum(count for report in reports for cohort in report.cohorts for _, count in cohort)


@pytest.mark.parametrize("attention", EVERY_WAY)
@pytest.mark.parametrize("family", FAMILY_PARAMETERS)
@pytest.mark.usefixtures("poison")
def test_families_equal_the_oracle(family: str, attention: str) -> None:
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    cases = variants(rng, [random_ids(rng, 9, 14), []], 4, 4)
    reports: list[StepReport] = []
    config = EngineConfig(attention=attention, max_prompts_per_cohort=6, max_tokens_per_step=128)
    prompts = decode(build_model(family), cases, endings, config, reports=reports)
    assert any(report.computed_texts for report in reports)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), family=st.sampled_from(FAMILIES))
@pytest.mark.usefixtures("poison")
def test_any_schedule_of_families_equals_the_oracle(data: st.DataObject, seed: int, family: str) -> None:
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=float(rng.choice([0.02, 0.2, 0.6])))
    prefixes = [random_ids(rng, 0, 12) for _ in range(data.draw(st.integers(1, 3), "prefixes"))]
    cases = variants(rng, prefixes, data.draw(st.integers(1, 4), "families"), data.draw(st.sampled_from([2, 5, 9])))
    config = EngineConfig(
        max_tokens_per_step=data.draw(st.sampled_from([1, 17, 64, 4096])),
        max_prompts_per_cohort=data.draw(st.sampled_from([1, 2, 8, 32])),
        max_cached_tokens=data.draw(st.sampled_from([1, 60, 200, 100_000])),
        max_cached_prefixes=data.draw(st.sampled_from([1, 64])),
        attention=data.draw(st.sampled_from(WAYS)),
        overlap_steps=data.draw(st.booleans()),
    )
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for index in {0, len(cases) // 2, len(cases) - 1}:
        assert_equals_oracle(oracle, cases[index], prompts[index], endings)


# What is computed, and when.


def family(
    members: int, *, shared: int = 40, prefix: list[int] | None = None, seed: int = 0, limit: int = 2, own: int = 3
) -> list[Prompt]:
    """Prompts whose documents begin with the same tokens."""
    rng = np.random.default_rng([seed, shared])
    prefix, common = prefix or [], random_ids(rng, shared, shared)
    branches = [Branch([5, 6], limit)]
    return [
        Prompt(tree_layout(prefix, [*common, 10 + number, *random_ids(rng, own, own)], branches), tuple(prefix))
        for number in range(members)
    ]


def run(decoder: Decoder, prompts: list[Prompt]) -> list[StepReport]:
    decoder.add(prompts)
    reports = []
    while decoder.has_work:
        reports.append(decoder.step())
    return reports


def llama(**options: Any) -> Decoder:
    return Decoder(LLAMA, NEVER, EngineConfig(**options), cache_shape(LLAMA), None, TRIES)


def of_texts(reports: list[StepReport]) -> list[int]:
    """The tokens of each text that was computed."""
    return [text.num_own_tokens for report in reports for text in report.computed_texts]


@pytest.mark.parametrize("attention", EVERY_WAY)
def test_what_is_shared_is_computed_once(attention: str) -> None:
    prefix = random_ids(np.random.default_rng(3), 20, 20)
    apart = total(run(llama(attention=attention, share_text=False), family(5, prefix=prefix)))
    decoder = llama(attention=attention)
    prompts = family(5, prefix=prefix)
    reports = run(decoder, prompts)
    assert of_texts(reports) == [40]
    assert [prompt.num_shared_tokens for prompt in prompts] == [40] * 5
    assert total(reports) == apart - 4 * 40
    assert sum(len(report.computed_prefixes) for report in reports) == 1
    assert not decoder._scheduler._common.texts, "nobody waits for it"


def test_a_family_within_a_family_stands_on_it() -> None:
    rng = np.random.default_rng(4)
    common, below, branches = random_ids(rng, 40, 40), random_ids(rng, 30, 30), [Branch([5, 6], 2)]
    documents = [[*common, 1], [*common, 2], *([*common, *below, n] for n in (3, 4))]
    prompts = [Prompt(tree_layout([7, 8], document, branches), "it") for document in documents]
    reports = run(llama(), prompts)
    assert of_texts(reports) == [40, 30]
    assert [prompt.num_shared_tokens for prompt in prompts] == [40, 40, 70, 70]


def test_where_nothing_is_shared_nothing_changes() -> None:
    def fed(**options: Any) -> list[list[list[int]]]:
        rng = np.random.default_rng(6)
        prompts = [Prompt(tree_layout([7, 8], random_ids(rng, 30, 40), [Branch([5], 3)]), "it") for _ in range(20)]
        reports = run(llama(max_prompts_per_cohort=6, max_tokens_per_step=128, **options), prompts)
        return [[[count for _, count in cohort] for cohort in report.cohorts] for report in reports]

    assert fed() == fed(share_text=False)


@pytest.mark.parametrize("options", [{"share_text": False}, {"layout": "stacked"}])
def test_it_can_be_switched_off_and_is_off_for_stacked_prompts(options: dict[str, Any]) -> None:
    prompts = family(5)
    assert of_texts(run(llama(**options), prompts)) == []
    assert {prompt.num_shared_tokens for prompt in prompts} == {0}


def test_members_that_are_far_apart_run_together() -> None:
    """The text stays in memory for no longer than it takes to admit them."""
    prefix = [7, 8]
    families = [family(3, prefix=prefix, seed=seed) for seed in range(40)]
    prompts = [members[number] for number in range(3) for members in families]
    decoder = llama(max_prompts_per_cohort=6, max_tokens_per_step=128)
    decoder.add(prompts)
    most, order = 0, []
    while decoder.has_work:
        order += decoder.step().finished
        most = max(most, len(decoder._scheduler._common.texts))
    assert most <= 4, "the next that fit a step"
    place = {prompt: number for number, prompt in enumerate(order)}
    for members in families:
        assert max(place[p] for p in members) - min(place[p] for p in members) < 12


def test_texts_are_computed_for_many_prompts_at_once() -> None:
    """A step for texts alone is as full as others are."""
    prompts = [prompt for seed in range(8) for prompt in family(3, prefix=[7, 8], seed=seed)]
    reports = run(llama(max_prompts_per_cohort=6, max_tokens_per_step=170), prompts)
    assert [len(report.computed_texts) for report in reports if report.computed_texts] == [4, 3, 1]


def test_prompts_of_several_submissions_that_wait_share_their_text() -> None:
    decoder = llama(max_prompts_per_cohort=4, max_tokens_per_step=64)
    busy = [
        Prompt(tree_layout([7, 8], random_ids(np.random.default_rng(n), 40, 40), [Branch([5], 9)]), "it")
        for n in range(4)
    ]
    decoder.add(busy)
    decoder.step()
    members = family(4, prefix=[7, 8])
    for prompt in members:
        prompt.prefix_key = "it"
        decoder.add([prompt])
    reports = run(decoder, [])
    assert of_texts(reports) == [40]
    assert [prompt.num_shared_tokens for prompt in members] == [40] * 4


@settings(max_examples=examples(40))
@given(data=st.data())
def test_the_oldest_is_in_every_cohort_that_is_admitted(data: st.DataObject) -> None:
    """Whatever arrives when, and however little memory there is; and all end."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    prefixes = [random_ids(rng, 2, 6), random_ids(rng, 2, 6), []]
    decoder = llama(
        max_prompts_per_cohort=data.draw(st.integers(1, 5)),
        max_tokens_per_step=data.draw(st.sampled_from([8, 60, 4096])),
        max_cached_prefixes=data.draw(st.integers(1, 2)),
        max_cached_tokens=data.draw(st.sampled_from([1, 120, 400, 10**6])),
        attention=data.draw(st.sampled_from(WAYS)),
    )
    waiting: list[Prompt] = []
    started: set[Prompt] = set()

    def step() -> None:
        fed = [item for cohort in decoder.step().cohorts for item, _ in cohort if item.layout.num_branches]
        new = set(fed) - started
        oldest = next((prompt for prompt in waiting if prompt not in started), None)
        assert not new or oldest in new
        started.update(new)

    for _ in range(data.draw(st.integers(1, 3))):
        arrived = [case.prompt() for case in variants(rng, prefixes, data.draw(st.integers(1, 3)), 4)]
        waiting += arrived
        decoder.add(arrived)
        for _ in range(data.draw(st.integers(0, 4))):
            if decoder.has_work:
                step()
    for _ in range(2000):
        if not decoder.has_work:
            break
        step()
    assert started == set(waiting)
    assert all(prompt.is_finished for prompt in waiting)
    assert decoder.pool.num_used == 0
    assert not decoder._scheduler._common.texts
    assert not decoder._scheduler._common._longest


# Memory.


@pytest.mark.parametrize("attention", EVERY_WAY)
@pytest.mark.parametrize(("slots", "is_shared"), [(2 * 60, True), (2 * 60 - 1, False)])
def test_a_text_for_which_there_is_no_room_is_not_shared(attention: str, slots: int, is_shared: bool) -> None:
    prefix = random_ids(np.random.default_rng(3), 20, 20)
    prompts = family(3, prefix=prefix)
    reports = run(llama(attention=attention, max_cached_tokens=slots), prompts)
    assert of_texts(reports) == [40] * is_shared
    assert all(prompt.is_finished for prompt in prompts)


def test_texts_count_as_what_is_in_the_cache() -> None:
    """Two families of which only one fits, with a prompt of it: they take turns."""
    prompts = family(3, seed=1, limit=8) + family(3, seed=2, limit=8)
    decoder = llama(max_cached_tokens=2 * 40 + 14)
    decoder.add(prompts)
    while decoder.has_work:
        decoder.step()
        scheduler = decoder._scheduler
        shared = {*scheduler._common.texts}.union(*(cohort.shared_prefixes for cohort in scheduler.running))
        cached = sum(cohort.num_cached_tokens for cohort in scheduler.running)
        assert sum(text.num_tokens for text in shared) + cached <= 2 * 40 + 14 + 16, "but for the room to grow"


def test_texts_do_not_push_out_prefixes() -> None:
    rng = np.random.default_rng(2)
    prefixes = [random_ids(rng, 6, 6) for _ in range(2)]
    decoder = llama(max_cached_prefixes=2)
    for prefix in prefixes:
        run(decoder, family(3, prefix=prefix, seed=1) + family(3, prefix=prefix, seed=2))
    again = [report for prefix in prefixes for report in run(decoder, family(3, prefix=prefix, seed=3))]
    assert [text for report in again for text in report.computed_prefixes] == []


@pytest.mark.parametrize("fail_at", range(1, 20, 3))
@torch.inference_mode()
def test_after_an_end_of_memory_texts_are_computed_anew(fail_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def prompts() -> list[Prompt]:
        return [p for seed in range(4) for p in family(4, prefix=[7, 8, 9], seed=seed, limit=6)]

    limits: dict[str, Any] = {"max_prompts_per_cohort": 4, "max_tokens_per_step": 128}
    expected = prompts()
    run(llama(share_text=False, **limits), expected)
    take, calls = CachePool.take, 0

    def failing(pool: CachePool, num_prompts: int, capacity: int) -> CacheBlock:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise torch.OutOfMemoryError("made up")
        return take(pool, num_prompts, capacity)

    monkeypatch.setattr(CachePool, "take", failing)
    found, decoder = prompts(), llama(**limits)
    reports = run(decoder, found)
    assert [prompt.tokens for prompt in found] == [prompt.tokens for prompt in expected]
    assert sorted(id(p) for report in reports for p in report.finished) == sorted(map(id, found))
    assert of_texts(reports)
    assert decoder.pool.num_used == 0


def test_a_given_up_text_leaves_what_stands_above_it() -> None:
    top = SharedText(None, 10, [1, 2, 3])
    middle = SharedText(top, 20, [1, 2])
    bottom = SharedText(middle, 30, [1, 2])
    assert [text.or_above() for text in (bottom, middle, top)] == [bottom, middle, top]
    middle.is_given_up = True
    assert [text.or_above() for text in (bottom, middle, top)] == [bottom, top, top]
    top.is_given_up = True
    assert middle.or_above() is None
    assert all(child.parent is parent for parent, child in pairwise([top, middle, bottom]))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("others", [0, 3])
def test_a_text_whose_prompts_are_dropped_while_it_is_computed_is_not_kept(overlap: bool, others: int) -> None:
    """Nobody would ever forget it. `others`: prompts of a text that is computed beside it, and goes on."""
    decoder = llama(max_tokens_per_step=32, overlap_steps=overlap)
    dropped, kept = family(4, shared=90, seed=1), family(others, shared=90, seed=2)
    decoder.add([*dropped, *kept])
    decoder.step()
    assert not decoder._scheduler._common.texts, "it takes several steps"
    decoder.drop(dropped)
    while decoder.has_work:
        decoder.step()
    assert all(prompt.is_finished for prompt in kept)
    assert not decoder._scheduler._common.texts
    assert decoder.pool.num_used == 0
