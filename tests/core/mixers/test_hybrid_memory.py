"""What layers beside attention keep is counted where keys and values are."""

from __future__ import annotations

import numpy as np
import torch

from hpd_core.attention.kv_cache import CacheShape
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.hybrid_cache import MixerRoom
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.mixers.states import LayerMemory, MixerShape
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
    assert without - 3 * 3 * (SHAPE.bytes_per_column - 6 * 2) == 3 * SHAPE.bytes_per_trunk  # the tail's unused parts
    assert with_columns - without == 3 * 17 * SHAPE.bytes_per_column


def test_room_is_told_in_slots_of_keys_and_values() -> None:
    attention = CacheShape.uniform(2, 1, 4, 4, torch.float32, CPU)  # 64 bytes a token
    room = MixerRoom.of([SHAPE, SHAPE], attention)
    assert room.trunk == -(-2 * SHAPE.bytes_per_trunk // 64)
    assert room.column == -(-2 * SHAPE.bytes_per_column // 64)
    assert room.for_prompt(some_prompts(1)[0]) == room.trunk + room.column * (8 + 16)


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
