"""The memory of keys and values: never twice at a time, used again, none of it lost; and copies of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention import kv_cache
from hpd_core.attention.kv_cache import Arena, CacheBlock, CacheOrder, CachePool, CacheShape, LayerShape
from tests.examples import examples
from tests.tables import table

SHAPE = CacheShape.uniform(2, 3, 4, 5, torch.float32, torch.device("cpu"))
MIXED = CacheShape(
    (LayerShape(3, 4, 5), LayerShape(1, 8, 2), LayerShape(3, 4, 5)), torch.float32, torch.device("cpu"), (0, 1, 0, 2)
)
"""Layers of two shapes, in turn."""
SHAPES = [SHAPE, MIXED]
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
            pool.give_back(block)
        else:
            capacity = order.room_for(num_columns)
            block = pool.take(num_prompts, capacity)
            assert [tuple(tensor.shape) for tensor in block.keys] == [(num_prompts, 3, capacity, 4)] * 2
            assert [tensor.numel() for tensor in block.values] == [num_prompts * 3 * capacity * 5] * 2
            for tensor in (*block.keys, *block.values):
                assert (tensor == kv_cache.UNUSED_FILL).all()
                tensor.fill_(number)
            taken.append((number, block))
        assert pool.num_used == sum(block.memory.numel() for _, block in taken)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5000), st.integers(0, 99)), max_size=60))
def test_an_arena_loses_nothing(steps: list[tuple[bool, int, int]]) -> None:
    """Each part is at the lowest place that has room; when all are given back, all of it can be taken at once."""
    size, page = 20 * 1024, kv_cache.PAGE // 4
    arena = Arena(size, torch.float32)
    start = arena.take(size)
    assert start is not None
    assert arena.take(1) is None
    arena.give_back(start)
    parts: list[torch.Tensor] = []
    used = [False] * (size // page)
    for gives, count, which in steps:
        if gives and parts:
            part = parts.pop(which % len(parts))
            first = (part.data_ptr() - start.data_ptr()) // kv_cache.PAGE
            used[first : first + -(-len(part) // page)] = [False] * -(-len(part) // page)
            arena.give_back(part)
        else:
            pages = -(-count // page)
            places = [i for i in range(len(used) - pages + 1) if not any(used[i : i + pages])]
            found = arena.take(count)
            if not places:
                assert found is None
                continue
            assert found is not None
            assert len(found) == count
            assert found.data_ptr() - start.data_ptr() == places[0] * kv_cache.PAGE
            used[places[0] : places[0] + pages] = [True] * pages
            parts.append(found)
    for part in parts:
        arena.give_back(part)
    assert arena.take(size) is not None


def test_what_does_not_come_from_an_arena_is_left_alone() -> None:
    arena = Arena(2048, torch.float32)
    arena.give_back(torch.zeros(100))
    assert arena.take(2048) is not None


def test_without_address_space_there_is_no_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks come from the system, one by one."""
    empty = torch.empty

    def refuse(size: int, **options: object) -> torch.Tensor:
        if size > 10_000:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate much")
        return empty(size, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", refuse)
    pool = CachePool(SHAPE, max_tokens=1_000_000)
    first, second = pool.take(1, 9), pool.take(1, 9)
    assert first.memory.data_ptr() != second.memory.data_ptr()
    pool.give_back(first)
    assert pool.num_used == second.memory.numel()


def filled(pool: CachePool, num_prompts: int, capacity: int, seed: int) -> CacheBlock:
    block = pool.take(num_prompts, capacity)
    block.memory.copy_(torch.randn(block.memory.shape, generator=torch.Generator().manual_seed(seed)))
    return block


def columns(block: CacheBlock, row: int, num_columns: int) -> list[torch.Tensor]:
    """A prompt's first keys and values, [H_kv, C, D] each, of all layers."""
    values = [x if x.dim() == 4 else x.transpose(-1, -2).flatten(-3, -2) for x in block.values]
    return [x[row, :, :num_columns] for x in (*block.keys, *values)]


@table("shape", SHAPES)
@table("order", ORDERS)
def test_prompts_are_copied_with_all_that_is_in_use(order: CacheOrder, shape: CacheShape) -> None:
    pool = CachePool(shape, order)
    source, target = filled(pool, 3, 8, 1), filled(pool, 4, 12, 2)
    before = target.memory.clone()
    target.copy_prompts(np.array([3, 0]), source, np.array([0, 2]), np.array([5, 8]))
    for to, from_, width in ((3, 0, 5), (0, 2, 8)):
        for mine, others in zip(columns(target, to, width), columns(source, from_, width), strict=True):
            assert torch.equal(mine, others)
    untouched = CacheBlock(shape, order, before, 4, 12)
    for row in (1, 2):
        for mine, others in zip(columns(target, row, 12), columns(untouched, row, 12), strict=True):
            assert torch.equal(mine, others)


@table("shape", SHAPES)
@table("order", ORDERS)
def test_the_copy_of_a_prompt_has_memory_of_its_own_and_is_0_behind_its_last_column(
    order: CacheOrder, shape: CacheShape
) -> None:
    block = filled(CachePool(shape, order), 2, 8, 3)
    expected = [x.clone() for x in columns(block, 1, 6)]
    keys, values = block.copy_of_prompt(1, 6)
    block.memory.fill_(math.nan)
    by_column = [x if x.dim() == 3 else x.transpose(-1, -2).flatten(-3, -2) for x in values]
    for found, wanted in zip((*keys, *(x[:, :6] for x in by_column)), expected, strict=True):
        assert torch.equal(found, wanted)
    assert all((x[:, 6:] == 0).all() for x in by_column)
    assert all(x.is_contiguous() for x in values)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(ORDERS), st.sampled_from(SHAPES), st.lists(st.integers(1, 13), min_size=1, max_size=4))
def test_copies_are_joined_in_any_order_of_memory(order: CacheOrder, shape: CacheShape, sizes: list[int]) -> None:
    """Each behind all those before it, whether blocks are full or not; 0 behind the last column."""
    pool = CachePool(shape, order)
    joined = None
    expected: list[list[torch.Tensor]] = []
    for number, size in enumerate(sizes):
        block = filled(pool, 2, order.room_for(size), number)
        expected.append([x.clone() for x in columns(block, 1, size)])
        joined = block.copy_of_prompt(1, size, joined)
        block.memory.fill_(math.nan)
    assert joined is not None
    keys, values = joined
    by_column = [x if x.dim() == 3 else x.transpose(-1, -2).flatten(-3, -2) for x in values]
    total = sum(sizes)
    for layer, found in enumerate((*keys, *(x[:, :total] for x in by_column))):
        assert torch.equal(found, torch.cat([parts[layer] for parts in expected], dim=1))
    assert all((x[:, total:] == 0).all() for x in by_column)
    assert all(x.shape[1] == order.room_for(total) for x in by_column)
    assert all(x.is_contiguous() for x in values)
