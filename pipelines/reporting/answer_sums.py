"""Answer counts by category and attribute: how many have a value, and how many can be accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CERTAIN = 0.9
"""Certainty from which a value counts as likely right if no precision is promised."""

_KEYS = ("category", "attribute", "status", "decision", "source")


@dataclass(slots=True)
class AnswerSum:
    """Counts of answers. All but the statuses, `review` and `corrected` count only answers with a value.

    Attributes:
        decided: decided by the run, not by a person; `undecided`: without a decision.
        scored: with a known certainty; `certain`: with one of at least `CERTAIN`.
        calibrated: with a confidence; `expected_right`: sum of the confidences.
        said: given by a person.
    """

    values: int = 0
    absent: int = 0
    failed: int = 0
    accepted: int = 0
    review: int = 0
    decided: int = 0
    undecided: int = 0
    scored: int = 0
    certain: int = 0
    calibrated: int = 0
    expected_right: float = 0.0
    corrected: int = 0
    said: int = 0

    def __iadd__(self, other: AnswerSum) -> AnswerSum:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(slots=True)
class AnswerSums:
    """Answer counts by (category, attribute). Memory grows only with the number of pairs."""

    by_pair: defaultdict[tuple[str, str], AnswerSum] = field(default_factory=lambda: defaultdict(AnswerSum))

    def add(self, part: pa.Table, certainty: npt.NDArray[np.float64]) -> None:
        """Add the rows of a part. `certainty` (rows,): NaN if unknown."""
        table = part.select([*_KEYS, "confidence"]).append_column("certain", [pa.array(certainty >= CERTAIN)])
        table = table.append_column("scored", [pa.array(~np.isnan(certainty))])
        # An answer's further items repeat what its first row says.
        answers = table.filter(pc.equal(part.column("value_index"), 0))
        counted = answers.group_by(list(_KEYS)).aggregate(
            [([], "count_all"), ("certain", "sum"), ("scored", "sum"), ("confidence", "count"), ("confidence", "sum")]
        )
        for row in counted.to_pylist():
            self.by_pair[row["category"], row["attribute"]] += _sum_of(row)

    def total(self) -> AnswerSum:
        """Sum the counts over all pairs."""
        total = AnswerSum()
        for each in self.by_pair.values():
            total += each
        return total


def _sum_of(row: Mapping[str, Any]) -> AnswerSum:
    count, is_value, is_said = row["count_all"], row["status"] == "value", row["source"] == "review"
    return AnswerSum(
        values=count if is_value else 0,
        absent=count if row["status"] == "absent" else 0,
        failed=count if row["status"] not in ("value", "absent") else 0,
        accepted=count if is_value and row["decision"] == "accept" else 0,
        review=count if row["decision"] == "review" else 0,
        decided=count if row["decision"] is not None and not is_said else 0,
        undecided=count if is_value and row["decision"] is None else 0,
        scored=row["scored_sum"] if is_value else 0,
        certain=row["certain_sum"] if is_value else 0,
        calibrated=row["confidence_count"] if is_value else 0,
        expected_right=(row["confidence_sum"] or 0.0) if is_value else 0.0,
        corrected=count if is_said else 0,
        said=count if is_value and is_said else 0,
    )
