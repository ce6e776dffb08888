"""The cache of a cohort by address: what is said of the columns that come first, and memory that is given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from hpd_core import EngineConfig
from hpd_core.attention.kv_cache import CacheOrder, CachePool, CacheShape, CacheSlot
from hpd_core.decoding import decoder as decoder_module
from hpd_core.decoding.addressed_cache import AddressedCache
from hpd_core.decoding.cohort_cache import CohortInput, NewTokens, ranks_within
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.memory import Limits, activation_bytes, fitted
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
        slots = [slot.capacity for cache in caches for slot in cache._slots]
        assert memory.num_used == sum(CacheSlot.num_bytes(SHAPE, capacity) for capacity in slots)
        assert sum(slots) == sum(cache.slots_for(0) for cache in caches)

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


@dataclass
class Steps:
    """Steps of a decoder without a model, whose cache is as on a GPU: their sizes, and of each what was cached."""

    sizes: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, prompts: list[Prompt], limits: Limits, token: Callable[[], int], endings: Endings) -> Steps:
        """Decode these prompts; each of their tokens is a `token`."""
        steps = cls()

        def run(_: ModelRunner, inputs: Sequence[CohortInput]) -> Any:
            steps.sizes.append(sum(len(item.token_ids) for item in inputs))
            steps.cached.append(decoder.pool.num_used // CacheSlot.num_bytes(SHAPE, 1))
            tokens = np.array([token() for item in inputs for _ in item.logit_rows], dtype=np.int64)
            chosen = Chosen(tokens, np.zeros(len(tokens), dtype=np.float32), np.full(len(tokens), FREE))
            return SimpleNamespace(fetch=lambda: chosen)

        by_address = CacheOrder(fills=False, by_address=True)
        config = EngineConfig(attention="eager", share_text=False, overlap_steps=True, **asdict(limits))
        with patch.object(decoder_module, "cache_order", lambda *_: by_address), patch.object(ModelRunner, "run", run):
            decoder = Decoder(build_model("llama"), endings, config, SHAPE)
            decoder.add(prompts)
            while decoder.has_work:
                decoder.step()
                steps.running.append(sum(len(cohort.prompts) for cohort in decoder._scheduler.running))
        assert all(prompt.is_finished for prompt in prompts)
        return steps

    def share_of(self, least: int) -> float:
        """Return the share of all tokens that is in steps of at least so many."""
        return sum(size for size in self.sizes if size >= least) / sum(self.sizes)


@table(
    ("documents", "limit", "at_once"),
    [
        ([3] * 30, 1321, 20),  # short prompts take whole slots
        ([1500, *[40] * 40], 4330, 41),  # a long one does not count for the others
    ],
)
def test_as_many_run_as_fit(documents: list[int], limit: int, at_once: int) -> None:
    prompts = [Prompt(tree_layout([], [5] * length, [Branch([7], 3)]), ()) for length in documents]
    steps = Steps.of(prompts, Limits(8192, 64, limit, 64), lambda: 5, Endings.none(VOCABULARY))
    assert max(steps.cached) <= limit
    assert steps.running[0] == at_once


@table(
    ("memory", "least", "share"),
    [
        (141e9, 12_000, 0.95),  # an H200; what is left is the end, where nothing waits any more
        (48.3e9, 6_000, 0.85),  # an L40S, whose cache holds a third of them
    ],
)
def test_steps_of_a_thousand_listings_are_full(memory: float, least: int, share: float) -> None:
    """Simulate Llama 3.1 8B in bfloat16: documents of 120 to 420 tokens, 8 to 13 values of 5 tokens on average."""
    config = LlamaConfig(
        vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32
    )
    config.num_key_value_heads = 8
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    weights = sum(each.nbytes for each in model.parameters())
    shape = CacheShape.uniform(32, 8, 128, 128, torch.bfloat16, torch.device("cuda"))
    limits = fitted(EngineConfig(), shape, int(memory) - weights, activation_bytes(model, shape))
    rng = np.random.default_rng(0)
    prompts = []
    for number in range(1024):
        category, document = number % 10, [5] * int(rng.integers(120, 420))
        branches = [Branch([7, 7, 7], 30)] * (8 + category % 6)
        prompts.append(Prompt(tree_layout([5] * 200, document, branches), category))
    endings = Endings.of_texts(VOCABULARY, {6: "\n"}, [])
    steps = Steps.of(prompts, limits, lambda: 6 if rng.random() < 0.2 else 5, endings)
    assert steps.share_of(least) >= share, steps.sizes
    assert max(steps.cached) <= limits.max_cached_tokens
    assert not any(prompt.was_displaced for prompt in prompts)
