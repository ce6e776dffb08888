"""The reliability curve against plain arithmetic."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pipelines.quality.scoring import reliability


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_every_value_is_in_one_bin_and_the_error_is_the_mean_distance(pairs: list[tuple[float, bool]]) -> None:
    found = reliability(pairs)
    assert found is not None
    assert sum(each.count for each in found.bins) == len(pairs)
    by_bin: dict[int, list[tuple[float, bool]]] = {}
    for probability, is_right in pairs:
        place = next(number for number in range(10) if probability < (number + 1) / 10 or number == 9)
        by_bin.setdefault(place, []).append((probability, is_right))
    error = sum(abs(sum(p for p, _ in each) - sum(r for _, r in each)) for each in by_bin.values()) / len(pairs)
    assert math.isclose(found.ece, error, abs_tol=1e-9)
