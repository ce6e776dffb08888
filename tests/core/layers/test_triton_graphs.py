"""Which steps run as CUDA graphs, and that their tables hold any such step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention.step_tables import Cut, step_tables
from hpd_core.errors import ModelError
from tests.core.attention.step_problems import Shape, step_problem
from tests.core.families import build_model
from tests.core.helpers import (
    new_decoder,
)
from tests.core.triton import needs_interpreter, needs_triton
from tests.examples import examples
from tests.tables import table


@needs_triton
@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    cohorts=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any), min_size=1, max_size=3),
    group=st.sampled_from([1, 4, 200]),
)
def test_tables_of_a_graph_hold_any_step_of_its_tokens(seed: int, cohorts: list[list[int]], group: int) -> None:
    from hpd_core.layers.triton_layers import bucket, sizes_of

    item = step_problem(np.random.default_rng(seed), Shape(cohorts, 3, 1, 1, 2, 2))
    ids = np.arange(item.num_tokens)
    size = bucket(item.num_tokens)
    assert size is not None
    tables = step_tables(item.plans, ids, ids, Cut(128, 64, group), item.cache_shape, 0, 0, sizes_of(size))
    assert tables.sizes == sizes_of(size), "else the tables would be of another size than what was captured"


def _hook(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda *_: None)


def _stretch(model: Any) -> None:
    model.config.rope_parameters["rope_type"] = "dynamic"


@needs_triton
@table(
    ("change", "device", "reason"),
    [
        (lambda _: None, "cuda", None),
        (lambda _: None, "cpu", "CUDA graphs are for GPUs, not for cpu"),
        (_hook, "cuda", "somebody waits for its layers"),
        (_stretch, "cuda", "its rotary embedding (dynamic) waits"),
    ],
)
def test_what_has_no_graphs(change: Any, device: str, reason: str | None) -> None:
    from hpd_core.layers.triton_layers import why_no_graphs

    model = build_model("llama")
    change(model)
    found = why_no_graphs(model, torch.device(device))
    assert (found is None) == (reason is None)
    assert reason is None or (found or "").startswith(reason)


@needs_interpreter
def test_who_asks_for_graphs_that_cannot_be_had_is_told_why() -> None:
    with pytest.raises(ModelError, match=r"engine.cuda_graphs is true, but CUDA graphs are for GPUs, not for cpu"):
        new_decoder(build_model("llama"), attention="triton", cuda_graphs=True)
