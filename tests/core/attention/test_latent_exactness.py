"""Models that keep latents are held to the oracle, in every way to attend, each form of it and under any schedule."""

from __future__ import annotations

import copy
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core.attention.latent import LatentSizes
from hpd_core.config import EngineConfig
from hpd_core.engine import Engine
from hpd_core.errors import EngineError
from tests.core.attention.test_latent import FORMS
from tests.core.engines import config
from tests.core.families import BOTH_WAYS
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.native import WAYS
from tests.core.products import SCHEMAS, products
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build
from tests.core.sweep.tokenizer import tiny_tokenizer
from tests.core.test_exactness import LAYOUTS, SCHEDULES, check_schedule
from tests.examples import examples
from tests.tables import table

FAMILIES = ("deepseek_v2", "deepseek_v3", "axk1", "glm4_moe_lite", "longcat_flash", "minicpm3", "youtu")
WITH_INDEXERS = ("deepseek_v32", "glm_moe_dsa", "hy_v4")  # hy_v4 has sinks, too
HYBRIDS = ("kimi_linear",)


@cache
def _built(family: str) -> Any:
    return build(family, REACHES["loose"])


def model_of(family: str) -> Any:
    """Tiny, in fp32, without our attention."""
    return copy.deepcopy(_built(family))


_LAYOUTS_OF = (
    dict.fromkeys(FAMILIES, (*LAYOUTS, BOTH_WAYS))
    | dict.fromkeys(WITH_INDEXERS, LAYOUTS)
    | dict.fromkeys(HYBRIDS, ("tree",))
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("family", "layout"),
    [
        pytest.param(family, layout, marks=() if family == "deepseek_v3" else pytest.mark.full)
        for family, layouts in _LAYOUTS_OF.items()
        for layout in layouts
    ],
)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str, layout: str, way: str) -> None:
    """A second each."""
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=6) for _ in range(6)]
    config = EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64, attention=way)
    prompts = decode(model_of(family), cases, endings, config)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(_built(family), case, prompt, endings)


@pytest.mark.full
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    layout=st.sampled_from([*LAYOUTS, BOTH_WAYS]),
    family=st.sampled_from(["deepseek_v3", "longcat_flash"]),  # one attention a layer, and two
    form=st.sampled_from(list(FORMS)),
    **SCHEDULES | {"num_cases": st.integers(1, 8), "num_prefixes": st.integers(1, 3)},
)
@pytest.mark.usefixtures("poison")
def test_any_schedule_equals_oracle(layout: str, family: str, form: str, **schedule: Any) -> None:
    """As tests/core/test_exactness.py has it, with forms that the counts would not choose. A second each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatentSizes, "is_absorbed", FORMS[form])
        check_schedule(partial(model_of, family), layout, **schedule)


@table(
    ("way", "is_first"),
    [*((way, False) for way in WAYS), ("eager", True)],  # the kernel keeps no latents where one layer cannot
)
def test_a_layer_that_is_changed_after_it_was_loaded_is_named(way: str, is_first: bool) -> None:
    """By a hook, as by an adapter: its keys and values are made by its own call then, and were latents before; or the
    other way round, where they would be spread over all heads."""
    model = model_of("deepseek_v3")
    layer = model.model.layers[1].self_attn.kv_b_proj
    hook = layer.register_forward_hook(lambda *_: None) if is_first else None
    with Engine(model, tiny_tokenizer(), config(attention=way)) as engine:
        if hook is None:
            layer.register_forward_hook(lambda *_: None)
        else:
            hook.remove()
        with pytest.raises(EngineError, match=r"layer 1 has \d heads? of 24 .* make the engine of it then"):
            engine.extract(products(1), SCHEMAS)


@table("way", WAYS)
@pytest.mark.usefixtures("poison")
def test_some_layers_keep_latents_and_others_do_not(way: str) -> None:
    """Somebody waits for the calls of one layer's matrix."""
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=3, k_max=5) for _ in range(3)]
    model = model_of("deepseek_v3")
    model.model.layers[1].self_attn.kv_b_proj.register_forward_hook(lambda *_: None)
    for case, prompt in zip(cases, decode(model, cases, endings, EngineConfig(attention=way)), strict=True):
        assert_equals_oracle(_built("deepseek_v3"), case, prompt, endings)
