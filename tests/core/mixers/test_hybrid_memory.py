"""What layers beside attention keep is counted where keys and values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import EngineConfig
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.hybrid_cache import MixerRoom, slot_bytes
from hpd_core.decoding.memory import fitted
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.mixers.families import Mixers
from hpd_core.mixers.states import LayerMemory, MixerCache, MixerShape, TrunkState, grown
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings, Read
from tests.core.families import VOCABULARY
from tests.core.helpers import new_decoder, random_ids
from tests.core.native import WAYS
from tests.examples import examples

from .allocated_memory import Made, bytes_of_cohort, bytes_of_states, cohorts_of, kept_prefixes, unlike_prompts
from .hybrids import build_hybrid

CPU = torch.device("cpu")
SHAPE = MixerShape(6, 4, torch.bfloat16, CPU, key_heads=2, heads=4, key_size=5, value_size=3)


def some_prompts(count: int) -> list[Prompt]:
    rng = np.random.default_rng(2)
    branches = [Branch([5, 6], 3) for _ in range(4)]
    return [Prompt(tree_layout([], random_ids(rng, 8, 8), branches), None) for _ in range(count)]


def test_a_shape_counts_what_its_memory_takes() -> None:
    with_columns, without = (LayerMemory.new(SHAPE, 3, width).num_bytes for width in (20, 3))
    assert without == 3 * SHAPE.bytes_per_trunk
    assert with_columns - without == 3 * 17 * SHAPE.bytes_per_column


def test_prompts_behind_one_prefix_are_begun_together() -> None:
    """A copy for each prompt, layer and tensor is ten thousand calls of a GPU a cohort."""
    before = TrunkState([LayerMemory.new(SHAPE, 1, 3)] * 8, 5)
    calls = []
    for count in (2, 64):
        with Made() as made:  # type: ignore[no-untyped-call]
            MixerCache.for_prompts([SHAPE] * 8, [None, *[before] * count], 9)
        calls.append(made.calls)
    assert calls[0] == calls[1]


def test_merging_takes_little_more_than_what_comes_out() -> None:
    """All layers at once would be there three times beside the cohorts, of which no account knows."""
    caches = [MixerCache.for_prompts([SHAPE] * 20, [None] * count, 9) for count in (5, 3)]
    with Made() as made:  # type: ignore[no-untyped-call]
        merged = MixerCache.merge(caches, [np.arange(5), np.arange(2)], np.array([6, 2, 0, 1, 5, 3, 4]))
    assert merged.num_bytes <= made.most_bytes < 1.25 * merged.num_bytes


def test_room_is_told_in_slots_of_keys_and_values() -> None:
    attention = CacheShape.uniform(2, 1, 4, 4, torch.float32, CPU)  # 64 bytes a token
    room = MixerRoom.of([SHAPE, SHAPE], attention)
    assert room.trunk == -(-2 * SHAPE.bytes_per_trunk // 64)
    assert room.column == -(-2 * SHAPE.bytes_per_column // 64)
    assert room.width == 3
    assert room.for_prompt(some_prompts(1)[0]) == room.trunk + room.column * (grown(3 + 8 + 16) - 3)


def most_used(decoder: Decoder, prompts: list[Prompt]) -> int:
    """Numbers in use at most, over all steps."""
    most = 0
    decoder.add(prompts)
    while decoder.has_work:
        decoder.step()
        most = max(most, decoder.pool.num_used)
    return most


def test_no_more_prompts_are_admitted_than_the_cache_has_room_for() -> None:
    alone = most_used(new_decoder(build_hybrid("qwen3_5"), attention="eager"), some_prompts(1))
    decoder = new_decoder(build_hybrid("qwen3_5"), attention="eager")
    slot = decoder.pool.shape.numbers_per_token
    limited = new_decoder(build_hybrid("qwen3_5"), attention="eager", max_cached_tokens=4 * alone // slot)
    assert alone > 3 * slot * some_prompts(1)[0].most_own_tokens  # keys and values are the lesser part
    assert most_used(limited, some_prompts(12)) <= 4 * alone
    assert most_used(decoder, some_prompts(12)) > 8 * alone


def test_long_values_are_counted_before_they_are_written() -> None:
    """No prompt takes more than is kept for it, and no step more than is allowed."""
    rng = np.random.default_rng(2)
    branches = [Branch([5, 6], 60) for _ in range(4)]
    prompts = [Prompt(tree_layout([], random_ids(rng, 8, 8), branches), None) for _ in range(13)]
    model = build_hybrid("qwen3_5")
    attach(model)
    nothing_ends = Endings(np.zeros(VOCABULARY, bool), np.full((len(Read), VOCABULARY), Read.STRING, np.uint8))

    def decoder(**settings: Any) -> Decoder:
        return Decoder(model, nothing_ends, EngineConfig(attention="eager", **settings), cache_shape(model))

    alone = decoder()
    slot, mixers = alone.pool.shape.numbers_per_token, Mixers.of(model)
    assert mixers is not None
    room = MixerRoom.of(mixers.shapes, alone.pool.shape).for_prompt(prompts[0])
    own = grown(prompts[0].most_own_tokens)
    assert most_used(alone, prompts[:1]) <= (room + own) * slot
    limited = decoder(max_cached_tokens=3 * (room + own))
    assert most_used(limited, prompts[1:]) <= 3 * (room + own) * slot


class Checked:
    """Holds a decoder's accounts to what it has allocated, after each step.

    Attributes:
        most: bytes of states and columns at their highest; keys and values apart, which grow by rules of their own.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self.most = decoder, 0
        shape = decoder.pool.shape
        mixers = Mixers.of(decoder._model)
        assert mixers is not None
        self.slot = slot_bytes(mixers.shapes, shape)
        self.room = MixerRoom.of(mixers.shapes, shape)

    def run(self, prompts: list[Prompt]) -> int:
        """Returns how often a prefix was computed."""
        decoder, num_computed = self._decoder, 0
        decoder.add(prompts)
        while decoder.has_work:
            num_computed += len(decoder.step().computed_prefixes)
            self._check()
        return num_computed

    def _check(self) -> None:
        scheduler, pool = self._decoder._scheduler, self._decoder.pool
        allocated = [bytes_of_cohort(cohort) for cohort in cohorts_of(self._decoder)]
        assert pool.num_used * pool.shape.dtype.itemsize == sum(map(sum, allocated))
        prefixes = kept_prefixes(self._decoder)
        states = bytes_of_states(prefixes)
        num_states = states / (self.room.trunk * self.slot)
        assert len(prefixes) * 0.9 <= num_states <= len(prefixes)
        counted = scheduler._prefix_slots.count(scheduler.running, scheduler._prefix_cohort)
        assert states <= counted * self.slot
        for cohort, found in zip(cohorts_of(self._decoder), allocated, strict=True):
            assert sum(found) <= cohort.most_cached_tokens * self.slot
        self.most = max(self.most, sum(mixing for _, mixing in allocated) + states)


@settings(max_examples=examples(12), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 14),
    num_prefixes=st.integers(1, 9),
    room=st.floats(1.0, 6.0),
    family=st.sampled_from(["lfm2", "qwen3_5"]),
    way=st.sampled_from(WAYS),
    share_text=st.booleans(),
)
def test_what_is_counted_is_what_is_allocated(
    seed: int, count: int, num_prefixes: int, room: float, family: str, way: str, share_text: bool
) -> None:
    """And it stays within the limit, if that holds each prompt alone with its prefix; also where texts have states."""
    rng = np.random.default_rng(seed)
    prompts = unlike_prompts(rng, count, num_prefixes, random_ids(rng, 50, 50) if share_text else ())
    alone = Checked(new_decoder(build_hybrid(family), attention=way, share_text=False))
    largest = max(
        grown(prompt.layout.num_tokens + prompt.most_own_tokens) + alone.room.for_prompt(prompt) + 3 * alone.room.trunk
        for prompt in prompts
    )
    limit = int(room * largest)
    checked = Checked(new_decoder(build_hybrid(family), attention=way, share_text=share_text, max_cached_tokens=limit))
    checked.run(prompts)
    assert checked.most <= limit * checked.slot


def test_states_that_nobody_uses_make_room() -> None:
    """Of twelve categories one after the other: all are kept where there is room, and no answer depends on it."""

    def prompts() -> list[Prompt]:
        rng = np.random.default_rng(5)
        prefixes = [random_ids(rng, 6, 6) for _ in range(12)]
        layouts = [tree_layout(prefix, random_ids(rng, 4, 4), [Branch([5], 2)]) for prefix in prefixes * 2]
        return [Prompt(layout, tuple(layout.token_ids[:6])) for layout in layouts]

    model = build_hybrid("qwen3_5")
    roomy = Checked(new_decoder(model, attention="eager", max_prompts_per_cohort=2))
    expected = prompts()
    assert roomy.run(expected) == 12
    limit = 2 * roomy.room.for_prompt(expected[0]) + 5 * roomy.room.trunk
    tight = Checked(new_decoder(model, attention="eager", max_prompts_per_cohort=2, max_cached_tokens=limit))
    found = prompts()
    assert tight.run(found) > 12
    assert tight.most <= limit * tight.slot < roomy.most
    assert [prompt.tokens for prompt in found] == [prompt.tokens for prompt in expected]


def test_a_model_without_attention_is_fitted_by_what_its_layers_keep() -> None:
    nothing = CacheShape((), torch.float32, CPU, ())
    slot = slot_bytes([SHAPE], nothing)
    assert slot == SHAPE.bytes_per_column
    free = 2 * 10_000 * slot
    asked = EngineConfig(max_cached_tokens=2**20)
    assert fitted(asked, nothing, free, 1, slot).max_cached_tokens == 10_000
