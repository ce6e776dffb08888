"""Counts of a planned catalog, for `--dry-run`: its rows by category, and those that will be dead letters.

Reading a category is cheap; checking a row as a run does is expensive if it holds HTML. So the category of every row is
read, and all rows of a small catalog are checked, but only some of a large one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from hpd_core import CategorySchema
from pipelines.catalog.readers import SourceRow, read_piece
from pipelines.catalog.rows import DeadRows, RowRefusal, known_category, to_record
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.job.run_plan import Plan

# Refusals that are counted by category.
_BY_CATEGORY = ("no_schema", "null_category")
# Rows that are checked, and in how many places of a large catalog at least.
_MAX_CHECKED = 10_000
_PLACES = 20


@dataclass(slots=True)
class CatalogCounts:
    """Counts of a catalog's rows before a run.

    Attributes:
        categories: rows by category; "" for rows without one.
        dead: rows that will be dead letters for another reason than their category's name. Unreadable rows and
            categories are counted over the whole catalog; other reasons only if every row was checked.
        checked: number of rows that were checked as a run does.
        dead_in_sample: rows refused for those other reasons, if only a sample was checked.
    """

    categories: Counter[str] = field(default_factory=Counter)
    dead: DeadRows = field(default_factory=DeadRows)
    checked: int = 0
    dead_in_sample: DeadRows = field(default_factory=DeadRows)


def count_categories(plan: Plan, config: InputConfig, schemas: Mapping[str, CategorySchema]) -> CatalogCounts:
    """Count every planned row, and check up to about 10,000. Raises `RunError` if a file cannot be read."""
    counts = CatalogCounts()
    pieces = [piece for shard in plan.shards for piece in shard.pieces]
    is_whole = plan.num_rows <= _MAX_CHECKED
    dead = counts.dead if is_whole else counts.dead_in_sample
    # Small pieces are checked whole, large ones only at their beginning.
    step = 1 if is_whole else max(1, min(len(pieces) // _PLACES, plan.num_rows // _MAX_CHECKED))
    share = _MAX_CHECKED if is_whole else max(1, _MAX_CHECKED // len(pieces[::step]))
    for index, piece in enumerate(pieces):
        file = plan.files[piece.file].name
        for row in _rows(plan, piece, config.category.columns, config):
            category = _category(row, config, schemas)
            if isinstance(category, RowRefusal):
                counts.dead.add(category, file, row.number)
            else:
                counts.categories[category] += 1
        for row in islice(_rows(plan, piece, config.columns, config), share if index % step == 0 else 0):
            counts.checked += 1
            if row.values is None or isinstance(_category(row, config, schemas), RowRefusal):
                continue  # it is counted
            outcome = to_record(row.values, "", config, schemas)
            if isinstance(outcome, RowRefusal) and outcome.code not in _BY_CATEGORY:
                dead.add(outcome, file, row.number)
    return counts


def _rows(plan: Plan, piece: RowRange, columns: Sequence[str], config: InputConfig) -> Iterator[SourceRow]:
    file = plan.files[piece.file]
    return read_piece(*file.rows, piece, columns, anonymous=config.anonymous)


def _category(row: SourceRow, config: InputConfig, schemas: Mapping[str, CategorySchema]) -> str | RowRefusal:
    if row.values is None:
        return row.problem or RowRefusal("unreadable", "the row could not be read")
    return known_category(row.values, config, schemas)
