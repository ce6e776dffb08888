"""What a planned catalog will bring, for `--dry-run`: its rows by category, and those that will be dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpd_core import CategorySchema
from pipelines.catalog.cells import CellError, cell_category
from pipelines.catalog.readers import SourceRow, read_piece
from pipelines.catalog.rows import RowRefusal, to_record
from pipelines.config.extraction import InputConfig
from pipelines.job.run_plan import Plan

# They are counted by category.
_BY_CATEGORY = ("no_schema", "null_category")


@dataclass(slots=True)
class CatalogCounts:
    """Rows of a catalog before a run.

    Attributes:
        categories: rows whose category can be told; "" for those without one.
        dead: rows that will be dead letters for another reason than their category, by reason. JSONL is looked at
            whole, of Parquet the category's column.
        examples: by reason, the first of these rows.
    """

    categories: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add_dead(self, refusal: RowRefusal, file: str, row: int) -> None:
        """Counts a row that will be a dead letter."""
        self.dead[refusal.code] += 1
        self.examples.setdefault(refusal.code, f"{file}, row {row}: {refusal.message}")


def count_categories(plan: Plan, config: InputConfig, schemas: Mapping[str, CategorySchema]) -> CatalogCounts:
    """Reads every planned row. Raises `RunError` if a file cannot be read."""
    counts = CatalogCounts()
    for shard in plan.shards:
        for piece in shard.pieces:
            file = plan.files[piece.file]
            for row in read_piece(file.name, file.format, piece, [config.category], anonymous=config.anonymous):
                refusal = _look_at(row, counts, config, schemas)
                if refusal is not None and refusal.code not in _BY_CATEGORY:
                    counts.add_dead(refusal, file.name, row.number)
    return counts


def _look_at(
    row: SourceRow, counts: CatalogCounts, config: InputConfig, schemas: Mapping[str, CategorySchema]
) -> RowRefusal | None:
    """Counts the row's category, if it can be told; why the row will be a dead letter."""
    if row.values is None:
        return row.problem or RowRefusal("unreadable", "the row could not be read")
    try:
        counts.categories[cell_category(row.values.get(config.category))] += 1
        refusal = None
    except CellError as bad:
        refusal = RowRefusal(bad.code, f"column {config.category!r}: {bad.reason}")
    if row.raw is None:
        return refusal  # of Parquet only the category was read
    outcome = to_record(row.values, "", config, schemas)
    return outcome if isinstance(outcome, RowRefusal) else None
