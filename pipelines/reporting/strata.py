"""Strata large enough to draw from, built from the survey's cells, and the allocation of draws to them.

A cell too small for a few draws is merged with its neighbour in length. A category that is too rare as a whole joins
the pool of rare ones, which is split by length as well.

Estimate of a catalog's cost from measured batches, with an interval. Pure numpy.

The draw is stratified, and every batch holds its share of every stratum. Leaving out one batch at a time (the
delete-a-group jackknife; Wolter, Introduction to Variance Estimation, chapter 4) gives the variance of the whole
estimate. It covers both the choice of products and a machine that is slower for a while. Products are never resampled
one by one, because those that ran in the same steps are correlated.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pipelines.errors import UsageError
from pipelines.reporting.forecast import Interval
from pipelines.reporting.survey import CellCount, Survey, SurveyCandidate, SurveyCell

POOL = None
"""Category of the strata that hold the rare categories."""

MIN_DRAWS = 4
"""Least expected draws of a stratum."""

# A row costs its text and, roughly as much as so many bytes of text, its keys and values: only for the allocation.
_BYTES_OF_ANSWERS = 200


@dataclass(frozen=True, slots=True)
class Stratum:
    """Stratum of rows that are drawn from together.

    Attributes:
        category: its category; None for the pool of rare categories.
        rows: category -> rows; one entry unless it is the pool.
        candidates: candidates in the order in which they are drawn.
    """

    category: str | None
    rows: Mapping[str, int]
    text_bytes: int
    candidates: Sequence[SurveyCandidate]

    @property
    def num_rows(self) -> int:
        """Number of rows of the catalog in it."""
        return sum(self.rows.values())

    @property
    def size(self) -> float:
        """Expected work, in bytes of text."""
        return self.text_bytes + _BYTES_OF_ANSWERS * self.num_rows


def make_strata(survey: Survey, num_draws: int) -> list[Stratum]:
    """Build strata for `num_draws` draws, each large enough for `MIN_DRAWS` of them, if the catalog is."""
    smallest = MIN_DRAWS / num_draws * sum(_size(cell) for cell in survey.cells.values())
    by_category: dict[str, list[tuple[SurveyCell, CellCount]]] = {}
    for cell, count in sorted(survey.cells.items()):
        by_category.setdefault(cell.category, []).append((cell, count))
    strata: list[Stratum] = []
    rare: list[tuple[SurveyCell, CellCount]] = []
    for category, cells in by_category.items():
        if sum(_size(count) for _, count in cells) < smallest:
            rare += cells
        else:
            strata += [_stratum(category, group) for group in _groups(cells, smallest)]
    if rare:
        rare.sort(key=lambda pair: pair[0].band)
        strata += [_stratum(POOL, group) for group in _groups(rare, smallest)]
    return strata


def _size(count: CellCount) -> float:
    return count.text_bytes + _BYTES_OF_ANSWERS * count.rows


def _groups(cells: Sequence[tuple[SurveyCell, CellCount]], smallest: float) -> list[list[tuple[SurveyCell, CellCount]]]:
    """Split `cells`, ordered by length, into groups of at least `smallest`; a smaller rest joins the last one."""
    groups: list[list[tuple[SurveyCell, CellCount]]] = [[]]
    for pair in cells:
        if sum(_size(count) for _, count in groups[-1]) >= smallest and pair[0].band != groups[-1][-1][0].band:
            groups.append([])
        groups[-1].append(pair)
    if len(groups) > 1 and sum(_size(count) for _, count in groups[-1]) < smallest:
        last = groups.pop()
        groups[-1] += last
    return groups


def _stratum(category: str | None, cells: Iterable[tuple[SurveyCell, CellCount]]) -> Stratum:
    rows: dict[str, int] = {}
    text_bytes = 0
    candidates: list[SurveyCandidate] = []
    for cell, count in cells:
        rows[cell.category] = rows.get(cell.category, 0) + count.rows
        text_bytes += count.text_bytes
        candidates += count.candidates
    return Stratum(category, rows, text_bytes, sorted(candidates))


def allocate(weights: Sequence[float], available: Sequence[int], num_draws: int, least: int) -> list[int]:
    """Distribute `num_draws` in proportion to `weights`: at least `least` each, at most `available`.

    The total is smaller if not enough are available.
    """
    draws = [min(least, limit) for limit in available]
    left = min(num_draws, sum(available)) - sum(draws)
    open_strata = {index for index, limit in enumerate(available) if draws[index] < limit}
    while left > 0 and open_strata:
        total = sum(weights[index] for index in open_strata)
        # What the minimum gives counts as part of the share.
        wanted = {
            index: weights[index] / total * (left + sum(draws[each] for each in open_strata)) if total else 1.0
            for index in open_strata
        }
        index = max(open_strata, key=lambda each: (wanted[each] - draws[each], -each))
        step = max(1, min(math.floor((wanted[index] - draws[index]) / 2), left, available[index] - draws[index]))
        draws[index] += step
        left -= step
        if draws[index] == available[index]:
            open_strata.remove(index)
    return draws


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


MIN_ROWS = 20
"""Fewest rows of a pilot."""

# As many batches as give the interval enough degrees of freedom, but none of fewer rows than this.
_MAX_BATCHES = 20
_MIN_BATCH_ROWS = 4
# From so many batches on, the first and the last are run but not counted: the engine fills, and drains, in them.
_MIN_BATCHES_TO_TRIM = 8


class DrawnRow(NamedTuple):
    """Row of the catalog in the pilot."""

    file: int
    row: int
    text_bytes: int
    category: str
    stratum: int
    batch: int


@dataclass(frozen=True, slots=True)
class PilotDraw:
    """Rows of a pilot, and the strata needed to extrapolate to the catalog.

    Attributes:
        strata_rows: per stratum, rows of the catalog by category.
        pooled: categories with too few rows for their own strata.
        rows: drawn rows in the order in which they run, batch by batch.
        num_batches: number of batches; the first and the last are not measured if `is_trimmed`.
    """

    strata_rows: Sequence[Mapping[str, int]]
    pooled: Sequence[str]
    rows: Sequence[DrawnRow]
    num_batches: int

    @property
    def is_trimmed(self) -> bool:
        """Whether the first and the last batch only warm up and drain."""
        return self.num_batches >= _MIN_BATCHES_TO_TRIM

    @property
    def measured_batches(self) -> range:
        """Batches that are measured."""
        return range(1, self.num_batches - 1) if self.is_trimmed else range(self.num_batches)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"rows": [list(row) for row in self.rows]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore a draw from the data of `to_dict`."""
        return cls(**{**data, "rows": [DrawnRow(*row) for row in data["rows"]]})


def draw_rows(
    strata: Sequence[Stratum],
    num_rows: int,
    seed: int,
    weights: Sequence[float] | None = None,
    taken: Sequence[int] | None = None,
) -> PilotDraw:
    """Draw `num_rows` rows, or all available ones.

    Args:
        weights: weight of each stratum in the allocation of rows; by default its work.
        taken: number of rows of each stratum that an earlier draw has, and which are skipped.

    Raises `UsageError` if `num_rows` or the rows of the catalog are fewer than `MIN_ROWS`.
    """
    if num_rows < MIN_ROWS:
        raise UsageError(f"a pilot of {num_rows} rows says nothing; take at least {MIN_ROWS}")
    taken = taken or [0] * len(strata)
    left = [stratum.candidates[first:] for stratum, first in zip(strata, taken, strict=True)]
    # In two batches at least, or the interval would not know of the stratum's spread.
    draws = allocate(weights or [stratum.size for stratum in strata], [len(rows) for rows in left], num_rows, least=2)
    total = sum(draws)
    if total < MIN_ROWS:
        raise UsageError(
            f"a pilot needs at least {MIN_ROWS} rows that can be extracted, and the catalog has {total}: "
            "run it as a whole, its own metrics say what it cost"
        )
    picked = [(index, each) for index, rows in enumerate(left) for each in rows[: draws[index]]]
    num_batches = min(_MAX_BATCHES, total // _MIN_BATCH_ROWS)
    num_batches += 2 * (num_batches + 2 >= _MIN_BATCHES_TO_TRIM)
    draw = PilotDraw([dict(stratum.rows) for stratum in strata], _pooled(strata), [], num_batches)
    batches = _deal(draw, [index for index, _ in picked], random.Random(seed))
    rows = [
        DrawnRow(each.file, each.row, each.text_bytes, each.category, index, batch)
        for (index, each), batch in zip(picked, batches, strict=True)
    ]
    return replace(draw, rows=sorted(rows, key=lambda row: (row.batch, row.file, row.row)))


def _pooled(strata: Sequence[Stratum]) -> list[str]:
    return sorted({name for stratum in strata if stratum.category is None for name in stratum.rows})


def _deal(draw: PilotDraw, strata: Sequence[int], random_numbers: random.Random) -> list[int]:
    """Return the batch of each drawn row, given its stratum. Every batch gets its share of every stratum."""
    batches = [-1] * len(strata)
    if draw.is_trimmed:
        # What does not count is taken from where there is enough.
        seen: Counter[int] = Counter()
        spare = [number for number, index in enumerate(strata) if (seen.update([index]) or seen[index]) > MIN_DRAWS]
        edges = random_numbers.sample(spare, min(len(spare), 2 * (len(strata) // draw.num_batches)))
        for place, number in enumerate(edges):
            batches[number] = 0 if place % 2 else draw.num_batches - 1
    measured = draw.measured_batches
    order: list[int] = []
    for number, batch in enumerate(batches):
        if batch < 0:
            if not order:
                order = random_numbers.sample(measured, len(measured))
            batches[number] = order.pop()
    return batches
