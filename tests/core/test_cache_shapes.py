"""Models whose layers differ in what they keep, by every way to attend, against the oracle."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from hpd_core.config import EngineConfig
from hpd_core.models.description import cache_shape

from .helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from .native import WAYS
from .sweep.configs import REACHES
from .sweep.outcome import build


def test_layers_that_share_keep_nothing_of_their_own() -> None:
    shape = cache_shape(build("gemma4_text", REACHES["loose"]))
    assert shape.calls == (0, 1, 0, 1)
    assert {layer.key_size for layer in shape.layers} == {16, 512}, "windows, and the full attention's larger heads"


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("name", ["gemma4_text", "deepseek_v3", "mimo_v2_flash", "diffllama", "llama4_text"])
@pytest.mark.usefixtures("poison")
def test_every_way_to_attend_takes_them(name: str, layout: str, way: str) -> None:
    """Two seconds each."""
    rng = np.random.default_rng(3)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=3, k_max=5) for _ in range(4)]
    model = build(name, REACHES["tight"])
    oracle = copy.deepcopy(model)
    config = EngineConfig(max_prompts_per_cohort=3, max_tokens_per_step=48, attention=way, layout=layout)
    for case, prompt in zip(cases, decode(model, cases, endings, config), strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)
