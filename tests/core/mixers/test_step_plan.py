"""A step's tokens as rectangles: each token is in one of them, and padding stays within bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpd_core.mixers.step_plan import alike

COUNTS = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 300), st.integers(1, 3000)), min_size=1, max_size=20)


@given(counts=COUNTS, unit=st.sampled_from([1, 16, 64]))
def test_each_prompt_is_in_one_group_that_is_not_much_longer(counts: list[int], unit: int) -> None:
    own = np.array(counts)
    groups = alike(own, unit)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(counts)))
    for group in groups:
        assert np.all(own[group].max() <= np.maximum(1.5 * own[group], own[group] + unit - 1))
    # A group more for each half again of the length, and no more.
    assert len(groups) <= 2 + np.log(max(counts)) / np.log(1.5)
