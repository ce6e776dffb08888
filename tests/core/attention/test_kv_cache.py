"""The memory of keys and values: never twice at a time, used again, none of it lost; and copies of it."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention import kv_cache
from hpd_core.attention.kv_cache import CacheBlock, CacheOrder, CachePool, CacheShape
from tests.examples import examples

SHAPE = CacheShape.uniform(2, 3, 4, 5, torch.float32, torch.device("cpu"))
ORDERS = [CacheOrder(), CacheOrder(block=1), CacheOrder(block=4)]
TAKES = st.lists(st.tuples(st.booleans(), st.integers(1, 6), st.integers(1, 9), st.integers(0, 99)), max_size=30)


@settings(max_examples=examples(200), deadline=None)
@given(TAKES, st.sampled_from(ORDERS), st.sampled_from([0, 40, 200]))
def test_blocks_are_apart_and_fresh(
    steps: list[tuple[bool, int, int, int]], order: CacheOrder, max_tokens: int
) -> None:
    """Those of the arena as those that it has no room for."""
    pool = CachePool(SHAPE, order, max_tokens=max_tokens)
    taken: list[tuple[float, CacheBlock]] = []
    for number, (gives, num_prompts, num_columns, which) in enumerate(steps, 1):
        if gives and taken:
            mark, block = taken.pop(which % len(taken))
            assert all((tensor == mark).all() for tensor in (*block.keys, *block.values)), "somebody else wrote here"
            block.keys[0].fill_(math.nan)  # what a broken model leaves
            pool.give_back(block.memory)
        else:
            capacity = order.room_for(num_columns)
            block = pool.take(num_prompts, capacity)
            assert [tuple(tensor.shape) for tensor in block.keys] == [(num_prompts, 3, capacity, 4)] * 2
            assert [tensor.numel() for tensor in block.values] == [num_prompts * 3 * capacity * 5] * 2
            for tensor in (*block.keys, *block.values):
                assert (tensor == kv_cache.UNUSED_FILL).all()
                tensor.fill_(number)
            taken.append((number, block))
        assert pool.num_used == sum(block.memory.nbytes for _, block in taken)
