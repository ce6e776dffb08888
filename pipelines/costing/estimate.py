"""Estimate of a catalog's cost from measured batches, with an interval. Pure numpy.

The draw is stratified, and every batch holds its share of every stratum. Leaving out one batch at a time (the
delete-a-group jackknife; Wolter, Introduction to Variance Estimation, chapter 4) gives the variance of the whole
estimate. It covers both the choice of products and a machine that is slower for a while. Products are never resampled
one by one, because those that ran in the same steps are correlated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.costing.forecast import Interval

FloatArray = npt.NDArray[np.float64]

# Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom, then for some above.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_T_ABOVE = ((30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980))


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements of S strata, B batches, C categories.

    Attributes:
        counts: float64 [S, B], number of products measured.
        seconds: float64 [S, B], sum of their engine seconds.
        rows: float64 [C, S], number of rows in the catalog.
    """

    counts: FloatArray
    seconds: FloatArray
    rows: FloatArray


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Engine seconds of the catalog: total, and [C] by category."""

    total: Interval
    by_category: list[Interval]


def estimate(measured: Measurements) -> CostEstimate:
    """Sum rows x mean seconds over strata. Raises `ValueError` for a stratum without a product or a single batch."""
    num_batches = measured.counts.shape[1]
    n, y = measured.counts.sum(axis=1), measured.seconds.sum(axis=1)
    if num_batches < 2 or (n == 0).any():
        raise ValueError("every stratum needs a product, and there must be two batches")
    means = y / n
    of_category = measured.rows @ means
    total = float(of_category.sum())
    # [S, B]: the means without each batch; a stratum that one batch holds alone keeps its own.
    rest = n[:, None] - measured.counts
    without = np.where(rest > 0, (y[:, None] - measured.seconds) / np.maximum(rest, 1), means[:, None])
    replicates = measured.rows @ without  # [C, B]
    # Degrees of freedom of a stratum: its number of batches, less one.
    freedom = (measured.counts > 0).sum(axis=1) - 1  # [S]

    def interval(value: float, moved: FloatArray, strata: npt.NDArray[np.bool_]) -> Interval:
        variance = (num_batches - 1) / num_batches * float(((moved - moved.mean()) ** 2).sum())
        degrees = max(1, min(num_batches - 1, int(freedom[strata].sum())))
        half = student_t(degrees) * variance**0.5
        return Interval(value, max(0.0, value - half), value + half)

    by_category = [
        interval(float(value), moved, rows > 0)
        for value, moved, rows in zip(of_category, replicates, measured.rows, strict=True)
    ]
    return CostEstimate(interval(total, replicates.sum(axis=0), n > 0), by_category)


def student_t(degrees: int) -> float:
    """Return the two-sided 95% quantile of Student's t; between the table's degrees, the wider one."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    return [value for limit, value in _T_ABOVE if limit <= degrees][-1]
