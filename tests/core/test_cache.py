"""The memory of keys and values: used again, never twice at a time, never more than once was needed."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import cache
from hpd_core.cache import CacheBlock, CachePool, CacheShape

SHAPE = CacheShape(2, 3, 4, 5, torch.float32, torch.device("cpu"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6), st.integers(1, 9), st.integers(0, 99)), max_size=30))
def test_blocks_are_apart_and_fresh(steps: list[tuple[bool, int, int, int]]) -> None:
    pool = CachePool(SHAPE)
    taken: list[tuple[float, CacheBlock]] = []
    most = 0
    for number, (gives, num_prompts, capacity, which) in enumerate(steps, 1):
        if gives and taken:
            mark, block = taken.pop(which % len(taken))
            assert all((tensor == mark).all() for tensor in (*block.keys, *block.values)), "somebody else wrote here"
            block.keys[0].fill_(math.nan)  # what a broken model leaves
            pool.give_back(block)
        else:
            block = pool.take(num_prompts, capacity)
            assert [tuple(tensor.shape) for tensor in block.keys] == [(num_prompts, 3, capacity, 4)] * 2
            assert [tuple(tensor.shape) for tensor in block.values] == [(num_prompts, 3, capacity, 5)] * 2
            for tensor in (*block.keys, *block.values):
                assert (tensor == cache.UNUSED_FILL).all()
                tensor.fill_(number)
            taken.append((number, block))
        used = sum(block.memory.numel() for _, block in taken)
        most = max(most, used)
        assert used + pool.num_free <= most


def test_what_fits_is_used_again() -> None:
    pool = CachePool(SHAPE)
    first, second = pool.take(4, 10), pool.take(4, 30)
    pool.give_back(second)
    pool.give_back(first)
    assert pool.take(3, 10).memory is first.memory, "the smallest that is large enough"
    assert pool.take(2, 10).memory is not second.memory, "much too large"
