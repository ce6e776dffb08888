"""The cache of a cohort by address: what is said of the columns that come first, and memory that is given back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import EngineConfig
from hpd_core.attention.kv_cache import CacheOrder, CachePool, CacheShape
from hpd_core.decoding import decoder as decoder_module
from hpd_core.decoding.addressed_cache import AddressedCache
from hpd_core.decoding.cohort_input import CohortInput, NewTokens, ranks_within
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.model_runner import ModelRunner
from hpd_core.decoding.next_token import Chosen
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import EVERYBODY, FREE, PUBLIC, Branch, tree_layout
from hpd_core.text.endings import Endings
from tests.core.families import VOCABULARY, build_model
from tests.tables import table

SHAPE = CacheShape.uniform(1, 1, 2, 2, torch.float32, torch.device("cpu"))


def pool() -> CachePool:
    return CachePool(SHAPE, CacheOrder(fills=False, by_address=True))


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(sizes, sizes, st.data())
def test_memory_is_given_back_whatever_happens_to_rows(
    first: list[int], second: list[int], data: st.DataObject
) -> None:
    memory = pool()
    caches = [AddressedCache.for_prompts(memory, [None] * len(own), np.array(own)) for own in (first, second)]

    def check(*caches: AddressedCache) -> None:
        assert memory.num_used == sum(cache.num_slots for cache in caches) * SHAPE.numbers_per_token

    check(*caches)
    kept = [data.draw(st.lists(st.booleans(), min_size=len(own), max_size=len(own))) for own in (first, second)]
    picked = [np.flatnonzero(rows) for rows in kept]
    count = sum(map(len, picked))
    merged = AddressedCache.merge(caches, picked, np.array(data.draw(st.permutations(range(count))), dtype=np.int64))
    check(merged)
    if count:
        # Rejected nodes leave columns behind: a slot may have to grow.
        rows = np.repeat(np.arange(count), data.draw(st.integers(1, 700)))
        ranks = ranks_within(rows)
        scopes, lasts = np.full(len(rows), PUBLIC), np.full(len(rows), EVERYBODY)
        plan = merged.append(NewTokens(rows, ranks, ranks, scopes, lasts, rows, ranks), 0, np.arange(count))
        assert all(slot.capacity >= ranks.max() + 1 for slot in plan.slots)
        check(merged)
    merged.release()
    assert memory.num_used == 0


@table(
    ("documents", "limit", "at_once"),
    [
        ([3] * 30, 1280, 20),  # short prompts take whole slots
        ([1500, *[40] * 40], 4200, 41),  # a long one does not count for the others
    ],
)
def test_as_many_run_as_fit(documents: list[int], limit: int, at_once: int) -> None:
    most = 0

    def run(_: ModelRunner, inputs: Sequence[CohortInput]) -> Any:
        nonlocal most
        most = max(most, decoder.pool.num_used // SHAPE.numbers_per_token)
        count = sum(len(item.logit_rows) for item in inputs)
        chosen = Chosen(np.full(count, 5), np.zeros(count, dtype=np.float32), np.full(count, FREE))
        return SimpleNamespace(fetch=lambda: chosen)

    by_address = CacheOrder(fills=False, by_address=True)
    limits = {"max_cached_tokens": limit, "max_tokens_per_step": 8192, "max_prompts_per_cohort": 64}
    config = EngineConfig(attention="eager", share_text=False, **limits)
    with patch.object(decoder_module, "cache_order", lambda *_: by_address), patch.object(ModelRunner, "run", run):
        decoder = Decoder(build_model("llama"), Endings.none(VOCABULARY), config, SHAPE)
        decoder.add(Prompt(tree_layout([], [5] * length, [Branch([7], 3)]), ()) for length in documents)
        decoder.step()
        running = sum(len(cohort.prompts) for cohort in decoder._scheduler.running)
        while decoder.has_work:
            decoder.step()
    assert most <= limit
    assert running == at_once
