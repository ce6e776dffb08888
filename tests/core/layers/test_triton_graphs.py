"""Which steps run as CUDA graphs, and that their tables hold any such step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import EngineConfig
from hpd_core.attention.step_tables import Cut, step_tables
from hpd_core.errors import ModelError
from tests.core.attention.step_problems import Shape, step_problem
from tests.core.families import build_model
from tests.core.helpers import (
    assert_equals_oracle,
    decode,
    decoder_with_constraints,
    new_decoder,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.pretended_gpu import pretended_gpu
from tests.core.triton import needs_interpreter, needs_triton
from tests.examples import examples
from tests.tables import table


@needs_triton
def test_a_step_gets_the_smallest_graph_that_holds_it() -> None:
    from hpd_core.layers.step_graphs import BUCKETS, bucket

    assert list(BUCKETS) == sorted(BUCKETS)
    for num_tokens in range(1, BUCKETS[-1] + 1):
        assert bucket(num_tokens) == min(size for size in BUCKETS if size >= num_tokens)
    assert bucket(BUCKETS[-1] + 1) is None


@needs_triton
@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    cohorts=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any), min_size=1, max_size=3),
    group=st.sampled_from([1, 4, 200]),
)
def test_tables_of_a_graph_hold_any_step_of_its_tokens(seed: int, cohorts: list[list[int]], group: int) -> None:
    from hpd_core.layers.step_graphs import bucket, sizes_of

    item = step_problem(np.random.default_rng(seed), Shape(cohorts, 3, 1, 1, 2, 2))
    ids = np.arange(item.num_tokens)
    size = bucket(item.num_tokens)
    assert size is not None
    tables = step_tables(item.plans, ids, ids, Cut(128, 64, group), item.cache_shape, 0, 0, sizes_of(size))
    assert tables.sizes == sizes_of(size), "else the tables would be of another size than what was captured"


@needs_interpreter
def test_when_memory_was_missing_graphs_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpd_core.layers import step_graphs

    monkeypatch.setattr(step_graphs, "BUCKETS", (16,))
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 4, 12)], branches=3, k_max=3) for _ in range(4)]
    replays = []
    with pretended_gpu() as gpu:
        decoder = decoder_with_constraints(build_model("llama").to("cuda"), endings, EngineConfig(overlap_steps=False))
        for case in cases:
            prompt = case.prompt()
            decoder.add([prompt])
            while decoder.has_work:
                decoder.step()
            replays.append(gpu.num_replays)
            if len(replays) == 2:
                decoder._runner.forget()
            assert_equals_oracle(build_model("llama"), case, prompt, endings)
    assert 0 < replays[0] < replays[1] == replays[2] == replays[3]


@needs_interpreter
def test_where_capturing_fails_steps_go_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless somebody has asked for graphs."""
    from hpd_core.layers import step_graphs

    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    case = random_case(rng, "tree", [random_ids(rng, 4, 12)], branches=2, k_max=2)
    model = build_model("llama")

    def failing(*_: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\n")

    with pretended_gpu():
        monkeypatch.setattr(step_graphs, "capture", failing)
        there = model.to("cuda")
        [prompt] = decode(there, [case], endings, EngineConfig())
        with pytest.raises(RuntimeError, match="not permitted"):
            decode(there, [case], endings, EngineConfig(cuda_graphs=True))
    assert "small steps go without CUDA graphs: operation not permitted" in caplog.text
    assert_equals_oracle(build_model("llama"), case, prompt, endings)


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
    from hpd_core.layers.step_graphs import why_no_graphs

    model = build_model("llama")
    change(model)
    found = why_no_graphs(model, torch.device(device))
    assert (found is None) == (reason is None)
    assert reason is None or (found or "").startswith(reason)


@needs_interpreter
def test_who_asks_for_graphs_that_cannot_be_had_is_told_why() -> None:
    with pytest.raises(ModelError, match=r"engine.cuda_graphs is true, but CUDA graphs are for GPUs, not for cpu"):
        new_decoder(build_model("llama"), attention="triton", cuda_graphs=True)
