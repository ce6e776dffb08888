"""Blocks of cache and the pool they come from."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hpd_core import cache
from hpd_core.cache import UNSEEN, CachePool, CacheShape, KVBlock, PrefixCache
from hpd_core.layout import PUBLIC

SHAPE = CacheShape(2, 3, 4, 5, torch.float32, torch.device("cpu"))
NAN = float("nan")


class PoolMachine(RuleBasedStateMachine):
    """Blocks come and go; each keeps what was written to it, and the pool holds no more than was in use at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = CachePool(SHAPE)
        self.held: list[tuple[KVBlock, float]] = []
        self.stamp = 0.0
        self.peak = 0

    @rule(num_prompts=st.integers(1, 5), capacity=st.integers(1, 40))
    def take(self, num_prompts: int, capacity: int) -> None:
        self.stamp += 1
        block = self.pool.take(num_prompts, capacity)
        assert block.keys.shape == (2, num_prompts, 3, capacity, 4)
        assert block.values.shape == (2, num_prompts, 3, capacity, 5)
        block.keys.fill_(self.stamp)
        block.values.fill_(-self.stamp)
        self.held.append((block, self.stamp))
        self.peak = max(self.peak, sum(storage_size(block) for block, _ in self.held))

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.held:
            self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @invariant()
    def nobody_writes_to_another_ones_block(self) -> None:
        for block, stamp in self.held:
            assert (block.keys == stamp).all()
            assert (block.values == -stamp).all()

    @invariant()
    def memory_is_bounded(self) -> None:
        assert sum(storage_size(block) for block, _ in self.held) + self.pool.num_idle <= self.peak


def storage_size(block: KVBlock) -> int:
    return block.keys.untyped_storage().nbytes() // block.keys.element_size()


TestPool = PoolMachine.TestCase


def test_memory_is_used_again() -> None:
    pool = CachePool(SHAPE)
    block = pool.take(4, 10)
    place = block.keys.data_ptr()
    del block
    assert pool.num_idle == 4 * 10 * 2 * 3 * 9
    assert pool.take(4, 9).keys.data_ptr() == place
    assert pool.take(4, 10).keys.data_ptr() == place, "the smaller one was given back at once"
    large = pool.take(4, 10)
    size = large.keys.untyped_storage().nbytes()
    del large
    small = pool.take(1, 2)
    assert small.keys.untyped_storage().nbytes() < size / 4, "a large buffer is not spent on a small block"
    del small
    pool.clear()
    assert pool.num_idle == 0


def test_memory_that_is_in_the_way_is_gone_before_more_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = CachePool(SHAPE)
    block = pool.take(4, 10)
    buffer = weakref.ref(block.keys._base)
    del block
    empty = torch.empty
    alive: list[bool] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        alive.append(buffer() is not None)
        return empty(*arguments, **options)

    monkeypatch.setattr(torch, "empty", watched)
    pool.take(4, 20)
    assert not alive[0]


def test_blocks_may_be_dropped_by_any_thread() -> None:
    pool = CachePool(SHAPE)
    held = [pool.take(1, 8) for _ in range(200)]

    def drop(count: int) -> None:
        for _ in range(count):
            held.pop()

    with ThreadPoolExecutor(4) as threads:
        drops = [threads.submit(drop, 50) for _ in range(4)]
        taken = [pool.take(1, 8) for _ in range(100)]
        for each in drops:
            each.result()
    assert len({block.keys.data_ptr() for block in taken}) == 100
    del taken
    assert pool.num_idle >= 200 * 8 * 2 * 3 * 9


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_columns_in_use_are_clean(columns: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "UNUSED_FILL", NAN)
        block = CachePool(SHAPE).take(3, 12)
        for count in columns:
            block.expose(count)
        used = max(columns)
        assert block.num_exposed == used
        for tensor in (block.keys, block.values):
            assert (tensor[:, :, :, :used] == 0).all()
            assert tensor[:, :, :, used:].isnan().all()
        assert (block.scopes[:, :used] == PUBLIC).all()
        assert (block.positions[:, :used] == UNSEEN).all()


def test_exposing_leaves_what_is_written() -> None:
    block = CachePool(SHAPE).take(2, 6)
    block.expose(2)
    block.keys[:, :, :, :2] = 7
    block.positions[:, :2] = 1
    block.expose(5)
    block.expose(3)
    assert (block.keys[:, :, :, :2] == 7).all()
    assert (block.keys[:, :, :, 2:5] == 0).all()
    assert block.positions[0].tolist()[:5] == [1, 1, UNSEEN, UNSEEN, UNSEEN]


def test_prefixes_and_rows_are_copied() -> None:
    def numbers(*shape: int) -> Any:
        return torch.randn(*shape)

    pool = CachePool(SHAPE)
    prefix = PrefixCache(numbers(2, 3, 4, 4), numbers(2, 3, 4, 5))
    block = pool.take(3, 8)
    block.expose(6)
    block.put_prefix(2, prefix)
    found = block.prefix(2, prefix.num_tokens)
    assert torch.equal(found.keys, prefix.keys)
    assert torch.equal(found.values, prefix.values)
    assert block.positions[2].tolist()[:6] == [0, 1, 2, 3, UNSEEN, UNSEEN]

    other = pool.take(2, 7)
    other.expose(6)
    other.copy(block, [(1, 2)], 6)
    assert torch.equal(other.keys[:, 1, :, :6], block.keys[:, 2, :, :6])
    assert torch.equal(other.values[:, 1, :, :6], block.values[:, 2, :, :6])
    assert torch.equal(other.positions[1, :6], block.positions[2, :6])
    assert torch.equal(other.scopes[1, :6], block.scopes[2, :6])
    assert (other.keys[:, 0, :, :6] == 0).all()
