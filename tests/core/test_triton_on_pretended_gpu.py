"""The way to attend that a GPU has, on a pretended one: nothing waits, few launches, and graphs of small steps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpd_core import EngineConfig
from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.next_token import greedy
from hpd_core.text.constraints import FREE, StateTable
from hpd_core.text.endings import Endings
from tests.core.families import BOTH_WAYS, VOCABULARY, build_model
from tests.core.helpers import (
    TreeCase,
    decoder_with_constraints,
    random_branches,
    random_ids,
    without_members,
)
from tests.core.pretended_gpu import pretended_gpu
from tests.core.test_pretended_gpu import check_decoding, check_engine
from tests.core.token_states import token_states
from tests.core.triton import needs_interpreter

pytestmark = needs_interpreter


def full(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is slow."""
    from hpd_core.layers import step_graphs

    monkeypatch.setattr(step_graphs, "BUCKETS", (4, 16, 48))


@pytest.mark.parametrize(
    ("family", "layout", "settings"),
    [
        ("llama", "tree", {}),
        full("llama", "tree", {"cuda_graphs": False}),
        full("llama", "tree", {"layers": "transformers"}),
        ("llama", "stacked", {"cuda_graphs": False}),
        full("qwen3", "tree", {"overlap_steps": False}),
        full("llama", BOTH_WAYS, {}),
        full("qwen3", BOTH_WAYS, {}),
        full("qwen3", "stacked", {}),
        full("mistral", "tree", {}),
        full("gemma3", "tree", {}),
    ],
)
def test_decoding_equals_the_oracle_and_never_waits(family: str, layout: str, settings: dict[str, Any]) -> None:
    """Steps of more tokens than graphs have, and of fewer."""
    config = EngineConfig(max_tokens_per_step=64, max_prompts_per_cohort=2, **settings)
    gpu = check_decoding(layout, family, config, num_cases=4, branches=3, k_max=4)
    # Tokens that reach beyond a window have no graph; there are no others here.
    is_captured = family in ("llama", "qwen3") and not settings.keys() & {"cuda_graphs", "layers"}
    assert (gpu.num_replays > 0) == is_captured


@pytest.mark.parametrize("settings", [{}, full({"layout": "stacked"}), full({"prompt": {"keys": "short"}})])
def test_an_engine_answers_as_on_the_cpu(settings: dict[str, Any], tiny_model_dir: Path) -> None:
    assert check_engine(tiny_model_dir, 1, settings) == "triton"


MOST_OF_A_LAYER, MOST_OUTSIDE = 9, 40
"""Launches: four products, two norms, rotary embedding and cache, attention, SwiGLU; and all that a step has beside."""


def launches_of_steps(num_layers: int, num_cohorts: int) -> list[Counter[str]]:
    """Count those of the first steps of 8 prompts in so many cohorts, which share two prefixes. No value ends."""
    rng = np.random.default_rng(2)
    prompts = [
        without_members(TreeCase(random_ids(rng, 5, 5), random_ids(rng, 1, 2), random_branches(rng, 1, 9))).prompt()
        for _ in range(8)
    ]
    steps = []
    with pretended_gpu() as gpu, torch.inference_mode():
        kinds = {"num_hidden_layers": num_layers, "layer_types": ["full_attention"] * num_layers}
        model = build_model("qwen3", **kinds).to("cuda")
        config = EngineConfig(max_tokens_per_step=2048, cuda_graphs=False)
        decoder = decoder_with_constraints(model, Endings.none(VOCABULARY), config)
        shared = [PrefixCache(*(list(torch.randn(num_layers, 2, 5, 16, device="cuda")) for _ in "kv")) for _ in "ab"]
        cohorts = [
            Cohort.admit(prompts[first::num_cohorts], (shared * 4)[first::num_cohorts], decoder.pool)
            for first in range(num_cohorts)
        ]
        for _ in range(3):
            gpu.launches.clear()
            inputs = decoder._gather(cohorts)
            decoder._scatter(cohorts, inputs, decoder._forward(inputs).fetch())
            steps.append(+gpu.launches)
        for cohort in cohorts:
            cohort.release()
    return steps


def test_launches_are_few_and_the_same_for_any_number_of_cohorts() -> None:
    found = {cohorts: launches_of_steps(2, cohorts) for cohorts in (1, 2, 8)}
    assert found[1] == found[2] == found[8]
    for few, many in zip(found[1], launches_of_steps(3, 1), strict=True):
        of_a_layer = many.total() - few.total()
        assert of_a_layer <= MOST_OF_A_LAYER, many - few
        assert few.total() - 2 * of_a_layer <= MOST_OUTSIDE, few
        assert (few["attend_kernel"], many["attend_kernel"]) == (2, 3)


def test_what_allows_many_tokens_costs_a_choice_no_more_than_its_masks() -> None:
    table = StateTable()
    first = table.add(token_states([dict.fromkeys(range(1000), 0)]))
    launches = []
    with pretended_gpu() as gpu, torch.inference_mode():
        logits = torch.randn(64, 1500).to("cuda")
        for states in (np.full(64, FREE), np.full(64, first)):
            table.masks(np.array([first]), 1500, logits.device)  # kept
            gpu.waits.clear()
            gpu.launches.clear()
            found = greedy([logits], states, table, logits.device, by="triton").fetch()
            launches.append(gpu.launches.total())
            assert not gpu.waits
    assert (found.tokens < 1000).all()
    assert launches[1] <= launches[0] + 2, "the masks, side by side, and which of them a row has"
