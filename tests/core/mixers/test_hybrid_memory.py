"""What layers beside attention keep is counted where keys and values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hpd_core import EngineConfig
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.hybrid_cache import MixerRoom, slot_bytes
from hpd_core.decoding.memory import fitted
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.mixers.families import Mixers
from hpd_core.mixers.states import LayerMemory, MixerShape, grown
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings, Read
from tests.core.families import VOCABULARY
from tests.core.helpers import new_decoder, random_ids

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


def test_room_is_told_in_slots_of_keys_and_values() -> None:
    attention = CacheShape.uniform(2, 1, 4, 4, torch.float32, CPU)  # 64 bytes a token
    room = MixerRoom.of([SHAPE, SHAPE], attention)
    assert room.trunk == -(-2 * SHAPE.bytes_per_trunk // 64)
    assert room.column == -(-2 * SHAPE.bytes_per_column // 64)
    assert room.for_prompt(some_prompts(1)[0]) == room.trunk + room.column * grown(8 + 16)


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


def test_a_model_without_attention_is_fitted_by_what_its_layers_keep() -> None:
    nothing = CacheShape((), torch.float32, CPU, ())
    slot = slot_bytes([SHAPE], nothing)
    assert slot == SHAPE.bytes_per_column
    free = 2 * 10_000 * slot
    asked = EngineConfig(max_cached_tokens=2**20)
    assert fitted(asked, nothing, free, 1, slot).max_cached_tokens == 10_000
