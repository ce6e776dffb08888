"""Acceptance of a run's answers into an export, and the reasons for leaving others out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import Attribute, CategorySchema

COLUMNS = (
    "category",
    "attribute",
    "status",
    "norm_status",
    "num_tokens",
    "logprob_mean",
    "probability",
    "confidence",
    "decision",
)
"""Columns of the attributes table that `ExportAcceptance.reasons` reads."""

NO_VALUE = ("absent", "truncated", "invalid", "error")
"""Statuses of answers without a value; in an export, reasons for an empty cell."""

NOT_NORMALISED = {
    "ambiguous": "ambiguous: the text may mean several values",
    "conflict": "conflict: the text has another unit, or another kind of value, than the attribute",
    "no_rule": "no normalised form",
}
LOW_LOGPROB = "below --min-logprob"
LOW_CONFIDENCE = "below --min-confidence"
NO_CONFIDENCE = "no confidence is known"
LEAST_PROBABILITY = 0.8
UNCHECKED = f"unchecked: its probability is below {LEAST_PROBABILITY:g} (--all takes it)"
FOR_REVIEW = "for review: below what accept.precision asks for"
PART = "another value of its list is left out"

_BETWEEN = "\x1f"


def is_plain(attribute: Attribute) -> bool:
    """Return whether any text is a valid value, even without a normalised form."""
    return attribute.type == "string" and attribute.unit is None


@dataclass(frozen=True)
class ExportAcceptance:
    """Rule that accepts values with a normalised form, which attributes that take any text do not need.

    Answers of a run without any normalised values (`norm_status` is null) are taken unchanged. If the run has decided
    which values may be taken (`decision`), the others are for review and left out.

    Attributes:
        takes_raw: whether values without a normalised form are taken, too, unchanged.
        min_logprob: least mean log probability of a token.
        min_confidence: least confidence; answers without one are left out.
        takes_review: whether values that are for review, or unchecked, are taken, too.
        has_decided: whether the run has decided, so that a value without a decision is for review. Otherwise a value
            needs a probability of `LEAST_PROBABILITY`, unless another limit is given: its confidence or, without a
            calibration, the model's probability.
    """

    schemas: Mapping[str, CategorySchema]
    takes_raw: bool = False
    min_logprob: float | None = None
    min_confidence: float | None = None
    takes_review: bool = False
    has_decided: bool = False
    _plain: pa.Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain", pa.array(_plain_pairs(self.schemas.values()), pa.string()))

    def reasons(self, answers: pa.Table) -> pa.ChunkedArray:
        """Return for each row of the attributes table the reason for leaving it out; null if it is taken."""
        reason = pa.nulls(answers.num_rows, pa.string())
        for why, holds in reversed([*self._statuses(answers), *self._thresholds(answers)]):
            reason = pc.if_else(holds, why, reason)
        return reason

    def _statuses(self, answers: pa.Table) -> Iterable[tuple[str, pa.ChunkedArray]]:
        yield from ((status, pc.equal(answers["status"], status)) for status in NO_VALUE)
        if self.takes_raw:
            return
        norm = pc.fill_null(answers["norm_status"], "ok")
        pair = pc.binary_join_element_wise(answers["category"], answers["attribute"], _BETWEEN)
        for status, why in NOT_NORMALISED.items():
            holds = pc.equal(norm, status)
            if status == "no_rule":
                holds = pc.and_(holds, pc.invert(pc.is_in(pair, self._plain)))
            yield why, holds

    def _thresholds(self, answers: pa.Table) -> Iterable[tuple[str, pa.ChunkedArray]]:
        if not self.takes_review:
            yield FOR_REVIEW, pc.fill_null(pc.equal(answers["decision"], "review"), self.has_decided)
            if not self.has_decided and self.min_logprob is None and self.min_confidence is None:
                said = pc.exp(pc.multiply(answers["num_tokens"], answers["logprob_mean"]))  # of an older run
                probability = pc.coalesce(answers["confidence"], answers["probability"], said)
                yield UNCHECKED, pc.fill_null(pc.less(probability, LEAST_PROBABILITY), False)
        if self.min_logprob is not None:
            yield LOW_LOGPROB, pc.fill_null(pc.less(answers["logprob_mean"], self.min_logprob), True)
        if self.min_confidence is not None:
            yield NO_CONFIDENCE, pc.is_null(answers["confidence"], nan_is_null=True)
            yield LOW_CONFIDENCE, pc.fill_null(pc.less(answers["confidence"], self.min_confidence), False)


def _plain_pairs(schemas: Iterable[CategorySchema]) -> list[str]:
    return [
        f"{schema.category}{_BETWEEN}{attribute.name}"
        for schema in schemas
        for attribute in schema.attributes
        if is_plain(attribute)
    ]


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
