"""All layers in one call of C++: bit for bit what the same functions give one by one, and who is not to have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.config import EngineConfig
from hpd_core.decoding.prompt import Prompt
from hpd_core.layers.forward import CpuLayers
from tests.core.families import ALIKE, build_tiled_model
from tests.core.helpers import decode, random_case, random_endings, random_ids
from tests.core.native import layers_at_once, needs_tiles, threads
from tests.examples import examples
from tests.tables import table

pytestmark = needs_tiles

SEEDS = st.integers(0, 2**32 - 1)


@contextmanager
def one_by_one() -> Iterator[None]:
    with patch.object(CpuLayers, "_layers_at_once", lambda *_: None):
        yield


def answers(model: Any, seed: int, *, prompts: int, config: EngineConfig) -> list[tuple[Any, ...]]:
    """Decodes random prompts behind a few prefixes."""
    rng = np.random.default_rng(seed)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 30, 40)]
    cases = [random_case(rng, "tree", prefixes, branches=4, k_max=6) for _ in range(prompts)]
    return [read(prompt) for prompt in decode(model, cases, endings, config)]


def read(prompt: Prompt) -> tuple[Any, ...]:
    return prompt.tokens, prompt.logprobs, [end.closed for end in prompt.ends]


@pytest.mark.parametrize("family", ALIKE)
@settings(max_examples=examples(8), deadline=None)
@given(SEEDS, st.sampled_from([1, 6, 40]), st.sampled_from([1, 2, 3]), st.sampled_from([16, 200, 4096]))
def test_bit_for_bit_alike(family: str, seed: int, prompts: int, num_threads: int, most_tokens: int) -> None:
    """Biases (Qwen 2), norms of heads (Qwen 3), windows in some layers (Qwen 2) or all (Mistral), several cohorts."""
    model = build_tiled_model(family)
    config = EngineConfig(max_tokens_per_step=most_tokens, max_prompts_per_cohort=16)
    with threads(num_threads):
        with layers_at_once() as calls:
            found = answers(model, seed, prompts=prompts, config=config)
        with one_by_one():
            assert found == answers(model, seed, prompts=prompts, config=config)
    assert calls, "this model was to be run by one call a step"


@table("heads", [(4, 4, 16), (6, 2, 24), (8, 1, 8), (2, 2, 128)])
def test_heads_of_any_size(heads: tuple[int, int, int]) -> None:
    """Whose sizes together are not the model's."""
    sizes = dict(zip(("num_attention_heads", "num_key_value_heads", "head_dim"), heads, strict=True))
    model, config = build_tiled_model("qwen3", **sizes), EngineConfig()
    with layers_at_once() as calls:
        found = answers(model, 8, prompts=12, config=config)
    with one_by_one():
        assert found == answers(model, 8, prompts=12, config=config)
    assert bool(calls) == (heads[0] * heads[2] % 32 == 0)


def test_many_rows_are_cut_and_come_out_alike() -> None:
    """More than a thread has at once, and rows that fill no block."""
    model, config = build_tiled_model("qwen3"), EngineConfig(max_tokens_per_step=100_000, max_prompts_per_cohort=200)
    with layers_at_once() as calls:
        found = [answers(model, 5, prompts=180, config=config) for _ in (0, 1)]
    assert max(calls) > 3000
    with threads(3):
        assert answers(model, 5, prompts=180, config=config) == found[0] == found[1]
    with one_by_one():
        assert answers(model, 5, prompts=180, config=config) == found[0]


@table("name", ["q_proj", "v_proj", "o_proj"])
def test_who_waits_for_the_call_of_a_layer_is_called(name: str) -> None:
    model, waits = build_tiled_model("llama"), []
    hook = getattr(model.model.layers[1].self_attn, name).register_forward_hook(lambda *_: waits.append(1))
    with layers_at_once() as calls:
        answers(model, 1, prompts=3, config=EngineConfig())
        assert waits
        assert not calls
        hook.remove()
        answers(model, 1, prompts=3, config=EngineConfig())
        assert calls


def test_whole_weights_for_every_thread_or_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large layers are multiplied by all threads together; with the same numbers."""
    model, config = build_tiled_model("llama"), EngineConfig()
    expected = answers(model, 6, prompts=60, config=config)
    monkeypatch.setattr("hpd_core.layers.native.CACHED_WEIGHTS", 0)
    assert answers(model, 6, prompts=60, config=config) == expected
