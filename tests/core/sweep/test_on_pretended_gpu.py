"""Every type of model that the engine takes, on a pretended GPU by torch's own attention: it answers as on a CPU, and
no code of ours makes the host wait for the device. A second or two each."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from hpd_core.config import EngineConfig
from hpd_core.models.steering import attach
from tests.core.helpers import decode, random_case, random_endings, random_ids
from tests.core.mixers.hybrids import HYBRIDS, build_hybrid
from tests.core.pretended_gpu import pretended_gpu
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build
from tests.core.sweep.record import Record

IN_ALL_TESTS = {"gpt2", "glm5_next", "mamba"}
"""One type for each kind of code that is not the usual one: ids looked at, indexers, layers beside."""

ON_GPUS_ALONE = {"kolibri1"}
"""Torch has a product that they use (`mm` to another type) on a real one alone."""

# Whoever takes a mask of ours, and is of this version of transformers.
TYPES = sorted(
    name
    for name, found in Record.read().by_type.items()
    if name not in {*HYBRIDS, *ON_GPUS_ALONE}
    and any((each.layout, each.reach, each.kind) == ("tree", "loose", "exact") for each in found)
)
MADE = [(name, partial(build, name, REACHES["loose"])) for name in TYPES]
MADE += [(name, partial(build_hybrid, name)) for name in HYBRIDS]


@pytest.mark.parametrize(
    ("name", "make"), [pytest.param(*each, marks=[] if each[0] in IN_ALL_TESTS else pytest.mark.full) for each in MADE]
)
def test_it_answers_as_on_a_cpu_and_nobody_waits(name: str, make: Any) -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=2, k_max=2) for _ in range(2)]
    config = EngineConfig(attention="eager", max_tokens_per_step=96, max_prompts_per_cohort=2)
    expected = [prompt.tokens for prompt in decode(make(), cases, endings, config)]
    model = make()
    with pretended_gpu() as gpu:
        model = model.to("cuda")
        attach(model)
        gpu.waits.clear()
        found = [prompt.tokens for prompt in decode(model, cases, endings, config)]
    assert found == expected
    assert not [wait for wait in gpu.waits if "transformers" not in wait]
