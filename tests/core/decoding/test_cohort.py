"""The parts of a cohort, each alone: what prefill feeds, where the cache keeps it, how values' states are merged."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Prefill
from hpd_core.decoding.cohort_cache import UNSEEN, CohortCache, prompt_groups, side_by_side
from hpd_core.decoding.cohort_input import NewTokens, ranks_within
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.value_states import ValueStates
from hpd_core.layout import EVERYBODY, PUBLIC, Branch, IntArray, tree_layout

SHAPE = CacheShape.uniform(1, 1, 2, 2, torch.float32, torch.device("cpu"))
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def prompt(own: int, limits: list[int], prefix: int = 2) -> Prompt:
    """Its own tokens are the document and one key token per branch: `prefix`, `prefix` + 1, and so on."""
    ids = list(range(prefix + own + len(limits)))
    branches = [Branch([key], limit) for key, limit in zip(ids[prefix + own :], limits, strict=True)]
    return Prompt(tree_layout(ids[:prefix], ids[prefix : prefix + own], branches), "p")


def new_tokens(counts: list[int], first_position: int = 0) -> NewTokens:
    prompts = np.repeat(np.arange(len(counts)), counts)
    ranks = ranks_within(prompts)
    scopes, lasts = np.full(len(prompts), PUBLIC), np.full(len(prompts), EVERYBODY)
    positions = first_position + ranks
    return NewTokens(ranks, positions, positions, scopes, lasts, prompts, ranks)


def cache_of(num_own: list[int], room: int = 3) -> CohortCache:
    return CohortCache.for_prompts(CachePool(SHAPE), [None] * len(num_own), np.array(num_own) + room)


def rows_of(cohort_cache: CohortCache) -> IntArray:
    return np.arange(len(cohort_cache.used))


@given(lengths, st.integers(1, 30))
def test_prefill_feeds_every_own_token_once_and_in_order(own: list[int], budget: int) -> None:
    prefill = Prefill([prompt(length, [1]) for length in own])
    fed: list[list[int]] = [[] for _ in own]
    while left := int(prefill.num_left.sum()):
        tokens = prefill.feed(budget)
        assert len(tokens.token_ids) <= max(budget, len(own)), "the budget, or one column"
        assert tokens.ranks.tolist() == ranks_within(tokens.prompts).tolist()
        assert int(prefill.num_left.sum()) == left - len(tokens.token_ids)
        for row, token in zip(tokens.prompts.tolist(), tokens.token_ids.tolist(), strict=True):
            fed[row].append(token)
    assert fed == [list(range(2, 2 + length + 1)) for length in own]


def test_a_rejected_token_is_seen_by_nobody_and_its_last_columns_are_used_again() -> None:
    cache = cache_of([4, 4])
    cache.append(new_tokens([2, 1]), 0, rows_of(cache))
    plan = cache.append(new_tokens([3, 2], first_position=5), 0, rows_of(cache))
    assert plan.used.tolist() == [5, 3]
    # Of the first prompt the token in the middle and the last one are wrong, of the second none.
    cache.reject(plan, np.array([False, True, True, False, False]))
    assert cache.used.tolist() == [3, 3]
    assert plan.used.tolist() == [5, 3], "the plan of a step keeps what it was made with"
    plan = cache.append(new_tokens([1, 0], first_position=9), 0, rows_of(cache))
    assert plan.kv_columns.tolist() == [3]
    assert plan.k_positions.tolist() == [[0, 1, 5, 9], [0, 5, 6, UNSEEN]]


def test_a_rejected_token_between_others_keeps_its_column() -> None:
    cache = cache_of([4])
    plan = cache.append(new_tokens([4]), 0, rows_of(cache))
    cache.reject(plan, np.array([False, True, True, False]))
    assert cache.used.tolist() == [4]
    assert plan.k_positions.tolist() == [[0, UNSEEN, UNSEEN, 3]]


def test_a_cache_grows_keeps_rows_and_merges() -> None:
    pool = CachePool(SHAPE)
    caches = [CohortCache.for_prompts(pool, [None] * 2, np.array([2, 2])) for _ in range(2)]
    for cache in caches:
        before = cache.slots_for(0)
        cache.append(new_tokens([9, 3]), 0, rows_of(cache))
        assert cache.slots_for(0) > before
    caches[0].keep(np.array([1]))
    assert caches[0].used.tolist() == [3]
    merged = CohortCache.merge(caches, [np.array([0]), np.array([0, 1])], np.array([2, 0, 1]))
    assert merged.used.tolist() == [3, 3, 9]
    plan = merged.append(new_tokens([1, 1, 1], first_position=20), 0, rows_of(merged))
    positions = [[*range(3), 20], [*range(3), 20], [*range(9), 20]]
    assert plan.k_positions.tolist() == [row + [UNSEEN] * (10 - len(row)) for row in positions]
    assert pool.num_used == merged.slots_for(0) * SHAPE.numbers_per_token * SHAPE.dtype.itemsize, (
        "others are given back"
    )


def test_states_of_values_are_merged_by_rows() -> None:
    parts = [ValueStates.of_prompts([prompt(3, [1, 5]), prompt(3, [])]), ValueStates.of_prompts([prompt(2, [2, 3, 4])])]
    merged = ValueStates.merge(parts).rows(np.array([2, 0]))
    assert merged.limits.tolist() == [[2, 3, 4], [1, 5, 0]]
    assert merged.live.tolist() == [[True] * 3, [True, True, False]]
    assert merged.num_left.tolist() == [9, 6]
    assert merged.tokens.shape == (2, 3, 5)


def test_values_begin_behind_the_last_token_of_their_key() -> None:
    values = ValueStates.of_prompts([prompt(3, [1, 5]), prompt(1, [2])])
    assert values.ends.tolist() == [[3, 4], [1, -1]]
    assert [index.tolist() for index in values.begun_by(0, 4)] == [[0, 1], [0, 0]]
    assert [index.tolist() for index in values.begun_by(4, 5)] == [[0], [1]]


def test_prompts_of_a_prefix_stand_side_by_side_by_length() -> None:
    a, b = (PrefixCache([torch.zeros(1, 2, 2)], [torch.zeros(1, 2, 2)]) for _ in range(2))
    prefixes = [a, b, None, a, b]
    order = side_by_side(prefixes, [5, 3, 1, 4, 9])
    assert order.tolist() == [3, 0, 1, 4, 2]
    groups = prompt_groups([prefixes[row] for row in order])
    assert [(group.start, group.stop, group.prefix) for group in groups] == [(0, 2, a), (2, 4, b), (4, 5, None)]
