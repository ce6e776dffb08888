"""Backtest of the interval: repeated pilots on a catalog with a known cost of every row.

Nothing is decoded: each trial draws like a pilot, takes the known cost of its rows, and estimates the cost of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.costing.estimate import Measurements, estimate
from pipelines.costing.pilot_rows import MIN_ROWS, draw_rows
from pipelines.costing.strata import make_strata
from pipelines.costing.survey import CellCount, Survey, SurveyCell, row_number

SHARES = (0.01, 0.05, 0.1)
"""Shares of the catalog that the tried pilots draw."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """Results of pilots of one size.

    Attributes:
        share: share of the catalog in a pilot.
        num_rows: number of rows in a pilot.
        num_trials: number of pilots drawn.
        num_covered: number of their intervals that contain the true cost.
        mean_error: mean error of the estimates relative to the truth (bias).
        rms_error: root of their mean squared relative error.
        mean_half_width: mean half width of the intervals, relative to the estimates.
    """

    share: float
    num_rows: int
    num_trials: int
    num_covered: int
    mean_error: float
    rms_error: float
    mean_half_width: float

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the truth; should be 95%."""
        return self.num_covered / self.num_trials


def backtest(
    survey: Survey,
    seconds: Mapping[tuple[int, int], float],
    share: float,
    num_trials: int,
    batch_factor: Callable[[np.random.Generator], float] = lambda generator: 1.0,
) -> Backtest | None:
    """Try pilots of `share` of the catalog; return None if that is too few rows for a pilot.

    Args:
        survey: survey with every row of the catalog among its candidates.
        seconds: (file, row) -> cost in seconds; missing rows cost nothing.
        batch_factor: draws how many times slower than usual the machine is during a batch.
    """
    num_rows = round(share * sum(cell.rows for cell in survey.cells.values()))
    if num_rows < MIN_ROWS:
        return None
    generator = np.random.default_rng(0)
    truth = sum(seconds.get((each.file, each.row), 0.0) for cell in survey.cells.values() for each in cell.candidates)
    found = []
    for seed in range(num_trials):
        strata = make_strata(_renumbered(survey, seed), num_rows)
        draw = draw_rows(strata, num_rows, seed)
        counts, sums = np.zeros((len(strata), draw.num_batches)), np.zeros((len(strata), draw.num_batches))
        factors = [batch_factor(generator) for _ in range(draw.num_batches)]
        for row in draw.rows:
            counts[row.stratum, row.batch] += 1
            sums[row.stratum, row.batch] += seconds.get((row.file, row.row), 0.0) * factors[row.batch]
        measured = list(draw.measured_batches)
        rows = np.array([[float(stratum.num_rows) for stratum in strata]])
        found.append(estimate(Measurements(counts[:, measured], sums[:, measured], rows)).total)
    errors = np.array([each.estimate / truth - 1 for each in found])
    return Backtest(
        share,
        num_rows,
        num_trials,
        sum(each.contains(truth) for each in found),
        float(errors.mean()),
        float(np.sqrt((errors**2).mean())),
        float(np.mean([each.half_width_share for each in found])),
    )


def _renumbered(survey: Survey, seed: int) -> Survey:
    """Return the survey with the candidates' numbers and order of another seed."""
    cells: dict[SurveyCell, CellCount] = {}
    for cell, count in survey.cells.items():
        candidates = [each._replace(number=row_number(seed, str(each.file), each.row)) for each in count.candidates]
        cells[cell] = replace(count, candidates=sorted(candidates))
    return Survey(cells, Counter(survey.dead))


def describe(found: Sequence[Backtest]) -> list[str]:
    """Describe each size of a pilot in one line."""
    return [
        f"{each.share:>4.0%}, {each.num_rows:,} rows: {each.num_covered} of {each.num_trials} intervals hold the truth "
        f"({each.coverage:.0%}), ±{each.mean_half_width:.1%} on average; estimates are {each.rms_error:.1%} off, "
        f"{each.mean_error:+.1%} on average"
        for each in found
    ]
