"""Second pilot: more rows where the first one found the largest spread of the cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.costing.pilot import MeasuredRun, Pilot
from pipelines.costing.pilot_rows import MIN_ROWS, PilotDraw, draw_rows
from pipelines.costing.strata import Stratum
from pipelines.errors import UsageError

# Half of the rows go where the work is, whatever the first pilot found: what it found of a few rows may be luck.
_SHARE_BY_SPREAD = 0.5


def check_second(strata: Sequence[Stratum], num_first: int, num_rows: int) -> None:
    """Raise `UsageError` if a second pilot of `num_rows` rows cannot be drawn."""
    if num_rows < MIN_ROWS:
        raise UsageError(f"--second-pilot {num_rows} says nothing; take at least {MIN_ROWS}")
    least = 2 * len(strata)
    if num_rows < least:
        raise UsageError(f"--second-pilot {num_rows}: there are {len(strata)} strata, take at least {least} rows")
    rows = sum(stratum.num_rows for stratum in strata)
    if rows < num_first + MIN_ROWS:
        raise UsageError(f"--second-pilot: the first one takes {num_first} of {rows} rows, nearly all there are")


def second_draw(strata: Sequence[Stratum], first: Pilot, measured: MeasuredRun, num_rows: int, seed: int) -> PilotDraw:
    """Draw rows that the first pilot does not have; half of them by rows x spread of the cost (Neyman's allocation).

    Raises `UsageError` if the catalog has changed since the first pilot.
    """
    if [dict(stratum.rows) for stratum in strata] != [dict(rows) for rows in first.draw.strata_rows]:
        raise UsageError("the catalog has changed since the first pilot; begin anew in another folder (--folder)")
    costs: list[list[float]] = [[] for _ in strata]
    for number, row in enumerate(first.draw.rows):
        costs[row.stratum].append(measured.seconds.get(number, 0.0))
    return draw_rows(strata, num_rows, seed + 1, _weights(strata, costs), [len(each) for each in costs])


def _weights(strata: Sequence[Stratum], costs: Sequence[Sequence[float]]) -> list[float]:
    spread = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in costs]
    by_spread = [stratum.num_rows * each for stratum, each in zip(strata, spread, strict=True)]
    by_size = [stratum.size for stratum in strata]
    total, size = sum(by_spread) or 1.0, sum(by_size)
    return [
        _SHARE_BY_SPREAD * one / total + (1 - _SHARE_BY_SPREAD) * other / size
        for one, other in zip(by_spread, by_size, strict=True)
    ]
