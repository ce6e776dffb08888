"""Answers that an export leaves out, counted by attribute and reason, with an example of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

NOT_STATED = "absent"
"""Reason of an attribute that the text does not state: nothing is lost by leaving it out."""


@dataclass(slots=True)
class LeftOutAnswers:
    """Counts of answers by (attribute, reason), with the first product and its answer as an example of each."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], tuple[str, str | None]] = field(default_factory=dict)

    def add(self, attribute: str, reason: str, product_id: str, value: str | None) -> None:
        """Count one answer."""
        self.counts[attribute, reason] += 1
        self.examples.setdefault((attribute, reason), (product_id, value))

    def add_rows(self, answers: pa.Table) -> None:
        """Count rows of the attributes table with a column `reason`, which must have no nulls."""
        if not answers.num_rows:
            return
        grouped = answers.select(["attribute", "reason", "product_id", "value_raw"]).group_by(
            ["attribute", "reason"], use_threads=False
        )
        found = grouped.aggregate([("product_id", "count"), ("product_id", "first"), ("value_raw", "first")])
        for row in found.to_pylist():
            key = row["attribute"], row["reason"]
            self.counts[key] += row["product_id_count"]
            self.examples.setdefault(key, (row["product_id_first"], row["value_raw_first"]))

    @property
    def by_reason(self) -> Mapping[str, int]:
        """Number of answers by reason, the most frequent first."""
        total: Counter[str] = Counter()
        for (_, reason), count in self.counts.items():
            total[reason] += count
        return dict(total.most_common())

    def to_list(self) -> list[dict[str, Any]]:
        """Return a row for each attribute and reason, the most frequent first, for JSON output."""
        return [
            {"attribute": attribute, "reason": reason, "count": count}
            | dict(zip(("product_id", "value"), self.examples[attribute, reason], strict=True))
            for (attribute, reason), count in self.counts.most_common()
        ]
