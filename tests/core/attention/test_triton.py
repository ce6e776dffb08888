"""Attention and its tables' readers in Triton against attention as it is written down, run by Triton's interpreter."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.attention.dispatch import cache_order, way_to_attend
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.errors import ModelError
from tests.core.attention.step_problems import SHAPES, Shape, check, check_cache, copies, step_problem
from tests.core.triton import needs_interpreter
from tests.examples import examples
from tests.tables import table


def cpu(dtype: torch.dtype) -> CacheShape:
    return CacheShape.uniform(2, 2, 16, 16, dtype, torch.device("cpu"))


@needs_interpreter
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES, small_steps=st.booleans())
def test_the_kernels_compute_attention(seed: int, shape: Shape, small_steps: bool) -> None:
    """Cohorts, prompts with and without tokens and prefixes, columns nobody may see, sizes that fill no block.

    What is not in use is NaN, and NaN times nothing would be NaN.
    """
    item = step_problem(np.random.default_rng(seed), shape)
    before = copies(item)
    found = item.run(small_steps=small_steps)
    check(item, found)
    check_cache(item, before, item.k, item.v)


@needs_interpreter
@table("group", [1, 7, 130])
def test_any_number_of_heads_may_share_a_kv_head(group: int) -> None:
    item = step_problem(np.random.default_rng(3), Shape([[5, 30, 1]], 50, 1, group, 8, 8, prefix_lengths=(33,)))
    check(item, item.run())
    check(item, item.run(small_steps=True))


@needs_interpreter
def test_a_window_that_reaches_all_is_none() -> None:
    item = step_problem(np.random.default_rng(3), Shape([[5, 30]], 50, prefix_lengths=(33,), window=10**6))
    check(item, item.run())


def test_where_it_cannot_be_had_somebody_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ModelError, match=r"attention is 'triton', but the kernel in Triton runs on a GPU, not on cpu"):
        way_to_attend("triton", cpu(torch.float32))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "hpd_core.attention.triton", None)
    with pytest.raises(ModelError, match="Triton is not here"):
        way_to_attend("triton", cpu(torch.float32))


@needs_interpreter
def test_what_it_takes() -> None:
    assert way_to_attend("triton", cpu(torch.float32)) == "triton"
    assert cache_order("triton", cpu(torch.float32)).by_address
    with pytest.raises(ModelError, match=r"takes no torch\.float64"):
        way_to_attend("triton", cpu(torch.float64))
    assert way_to_attend("auto", cpu(torch.float32)) != "triton"
