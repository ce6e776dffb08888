"""How many rows each category of a planned catalog has, for `--dry-run`."""

from __future__ import annotations

from collections import Counter

from pipelines.catalog.readers import read_piece
from pipelines.config.extraction import InputConfig
from pipelines.job.run_plan import Plan


def count_categories(plan: Plan, config: InputConfig) -> dict[str, int]:
    """Rows by category; "" for rows without one. Reads the category column only."""
    counts: Counter[str] = Counter()
    for shard in plan.shards:
        for piece in shard.pieces:
            file = plan.files[piece.file]
            for row in read_piece(file.name, file.format, piece, [config.category], anonymous=config.anonymous):
                category = (row.values or {}).get(config.category)
                counts[category if isinstance(category, str) else ""] += 1
    return dict(counts)
