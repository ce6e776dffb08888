"""Rows drawn for a pilot, and the batch of each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

from pipelines.costing.strata import MIN_DRAWS, Stratum, allocate
from pipelines.errors import UsageError

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
