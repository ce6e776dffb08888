"""Attention and its tables' readers in Triton against attention as it is written down, run by Triton's interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.attention.step_problems import SHAPES, Shape, check, check_cache, copies, step_problem
from tests.core.triton import needs_interpreter
from tests.examples import examples
from tests.tables import table


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
