"""Strata large enough to draw from, built from the survey's cells, and the allocation of draws to them.

A cell too small for a few draws is merged with its neighbour in length. A category that is too rare as a whole joins
the pool of rare ones, which is split by length as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.costing.survey import CellCount, Survey, SurveyCandidate, SurveyCell

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
