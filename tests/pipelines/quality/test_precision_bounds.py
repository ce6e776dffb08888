"""Exact bounds against scipy's, and the promise over several thresholds against its level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from pipelines.quality.calibration_file import Taken, lower_bound, lowest_passing, tail
from tests.tables import table

COUNTS = st.integers(1, 3000).flatmap(lambda num: st.tuples(st.just(num), st.integers(0, num)))


@given(COUNTS, st.floats(0.001, 0.999))
def test_a_tail_is_that_of_the_binomial(counts: tuple[int, int], precision: float) -> None:
    num, right = counts
    assert tail(num, right, precision) == pytest.approx(binom.sf(right - 1, num, precision), rel=1e-6, abs=1e-15)


@given(COUNTS, st.sampled_from([0.01, 0.025, 0.05]))
def test_bounds_are_those_of_clopper_and_pearson(counts: tuple[int, int], level: float) -> None:
    num, right = counts
    low = beta.ppf(level, right, num - right + 1) if right else 0.0
    assert lower_bound(num, right, level) == pytest.approx(low, abs=1e-7)


@table("precision", [0.8, 0.95])
def test_a_wrong_promise_passes_in_few_draws(precision: float) -> None:
    """Just below the promise at every threshold, the hardest case: each promise would be wrong.

    4,000 draws, of which 5% are 200; more than 246 would be seen once in 2,000 such tests.
    """
    draws = np.random.default_rng(1)
    sizes = [60, 80, 120, 200, 400, 300]
    wrong = 0
    for _ in range(4000):
        rights = [draws.binomial(size, precision - 1e-6) for size in sizes]
        steps = [Taken(*map(int, each)) for each in zip(np.cumsum(sizes), np.cumsum(rights), strict=True)]
        wrong += lowest_passing(steps, precision) is not None
    assert wrong <= 246
