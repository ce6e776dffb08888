"""One pass over products, dead letters and attributes: sums by category, and the scores for drawing the sample.

Memory grows with the number of categories, not with the number of products.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from hpd_core import ErrorCode
from pipelines.reporting.formats import shortened
from pipelines.reporting.report_facts import DeadExample, DeadReason
from pipelines.store.run_tables import Parts

DOUBTFUL = 0.5
"""Certainty below which a value is more likely wrong than right."""

ANSWER_COLUMNS = (
    *("source_file", "source_row", "category", "attribute", "value_index", "status"),
    *("num_tokens", "logprob_mean", "evidence", "probability", "confidence", "decision", "source"),
)

Pairs = Set[tuple[str, str]]


class Scored(NamedTuple):
    """Scores of a product for drawing the sample. `lowest`: lowest certainty of its values; infinite if unknown."""

    source_file: str
    source_row: int
    category: str
    lowest: float
    ungrounded: int
    failed: int


@dataclass(slots=True)
class CategorySums:
    """Counts of a category.

    Attributes:
        engine_seconds: engine seconds; None until a product has some.
        priced: number of products decoded in shards with a price; `usd_weight`: their engine seconds, each times its
            shard's price per hour.
    """

    products: int = 0
    carried: int = 0
    dead_letters: int = 0
    engine_seconds: float | None = None
    priced: int = 0
    usd_weight: float | None = None


def scan_products(
    parts: Parts, prices: Mapping[int, float], larger_prices: Mapping[int, float] | None = None
) -> dict[str, CategorySums]:
    """Count products and seconds by category, without the counts that need the attributes.

    Args:
        prices: price of an engine hour, by shard; only shards that have one.
        larger_prices: likewise, for the engines of a cascade's larger model.
    """
    sums: defaultdict[str, CategorySums] = defaultdict(CategorySums)
    shards_by_price: defaultdict[tuple[float | None, float | None], set[int]] = defaultdict(set)
    for shard in parts.shards:
        shards_by_price[prices.get(shard), (larger_prices or {}).get(shard)].add(shard)
    columns = ("category", "engine_seconds", "cascade_seconds", "carried_from")
    for both, shards in shards_by_price.items():
        for part in parts.read("products", columns, shards):
            aggregated = part.group_by("category").aggregate(
                [("category", "count"), ("carried_from", "count")]
                + [(name, "sum") for name in ("engine_seconds", "cascade_seconds")]
            )
            for row in aggregated.to_pylist():
                _add_products(sums[row["category"]], row, *both)
    return dict(sums)


def _add_products(
    category: CategorySums, row: Mapping[str, Any], price: float | None, larger_price: float | None
) -> None:
    """Add a shard's products to the category."""
    category.products += row["category_count"]
    category.carried += row["carried_from_count"]
    if price is not None:
        category.priced += row["category_count"] - row["carried_from_count"]
    for name, usd_per_hour in (("engine_seconds_sum", price), ("cascade_seconds_sum", larger_price)):
        if (seconds := row[name]) is not None:
            category.engine_seconds = (category.engine_seconds or 0.0) + seconds
            if usd_per_hour is not None:
                category.usd_weight = (category.usd_weight or 0.0) + seconds * usd_per_hour


CERTAIN = 0.9
"""Certainty from which a value counts as likely right if no precision is promised."""

# How likely an answer is right: the confidence, else the model's own probability, which older runs lack: it is computed
# from all tokens then. Null if neither is known, or if a person gave the answer. An answer's items all have the same.
_ROWS = """
    CREATE OR REPLACE TEMP TABLE rows AS SELECT
        source_file, source_row, category, attribute, value_index, decision, confidence,
        status = 'value' AS is_value, status = 'absent' AS is_absent, coalesce(source = 'review', false) AS is_said,
        nullif(coalesce(confidence, probability, exp(num_tokens * logprob_mean)), 'nan'::DOUBLE) AS known,
        CASE WHEN NOT is_said THEN known END AS certainty,
        coalesce(booleans.is_one, false) AS is_concluded,
        bool_or(is_value AND len(evidence) = 0 AND NOT is_concluded) OVER answer AS is_ungrounded,
        is_value AND (evidence IS NOT NULL OR is_concluded) AS is_sought
    FROM part LEFT JOIN booleans USING (category, attribute)
    WINDOW answer AS (PARTITION BY source_file, source_row, attribute)
"""
# The probability of "not stated" says how sure the model is of that, not of any value.
_PRODUCTS = """
    SELECT source_file, source_row, any_value(category), coalesce(min(certainty) FILTER (NOT is_absent), 'inf'::DOUBLE),
        count(*) FILTER (value_index = 0 AND is_ungrounded), count(*) FILTER (NOT is_value AND NOT is_absent)
    FROM rows GROUP BY source_file, source_row
"""
# An answer's further items repeat what its first row says.
_ANSWERS = f"""
    SELECT category, attribute,
        count(*) FILTER (is_value) AS values, count(*) FILTER (is_absent) AS absent,
        count(*) FILTER (NOT is_value AND NOT is_absent) AS failed,
        count(*) FILTER (is_value AND decision = 'accept') AS accepted,
        count(*) FILTER (decision = 'review') AS review,
        count(decision) FILTER (NOT is_said) AS decided,
        count(*) FILTER (is_value AND decision IS NULL) AS undecided,
        count(certainty) FILTER (is_value) AS scored,
        count(*) FILTER (is_value AND certainty >= {CERTAIN}) AS certain,
        count(*) FILTER (is_value AND certainty < {DOUBTFUL}) AS doubtful,
        count(confidence) FILTER (is_value) AS calibrated,
        coalesce(fsum(confidence) FILTER (is_value), 0) AS expected_right,
        count(*) FILTER (is_said) AS corrected, count(*) FILTER (is_value AND is_said) AS said,
        count(*) FILTER (is_sought) AS sought, count(*) FILTER (is_ungrounded) AS ungrounded
    FROM rows WHERE value_index = 0 GROUP BY category, attribute
"""


@dataclass(slots=True)
class AnswerSum:
    """Counts of answers, each once, with however many items. All but the statuses, `review` and `corrected` count only
    answers with a value.

    Attributes:
        decided: decided by the run, not by a person; `undecided`: without a decision.
        scored: with a known certainty; `certain`: with one of at least `CERTAIN`; `doubtful`: below `DOUBTFUL`.
        calibrated: with a confidence; `expected_right`: sum of the confidences.
        said: given by a person.
        sought: looked for in the text, or not needed to be; `ungrounded`: with an item that stands nowhere in it.
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
    doubtful: int = 0
    calibrated: int = 0
    expected_right: float = 0.0
    corrected: int = 0
    said: int = 0
    sought: int = 0
    ungrounded: int = 0

    def shown(self, *, is_decided: bool) -> dict[str, Any]:
        """Return the counts that every table of the report has; None for those by decision if nothing was decided."""
        by_decision = {"accepted": self.accepted, "review": self.review} if is_decided else {}
        counts = {"values": self.values, "absent": self.absent, "failed": self.failed}
        return counts | {"accepted": None, "review": None} | by_decision

    @property
    def likely_right(self) -> int | None:
        """Number of values that are `certain`; None if the certainty of none is known."""
        return self.certain if self.scored else None

    def __iadd__(self, other: AnswerSum) -> AnswerSum:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


AnswerSums = defaultdict[tuple[str, str], AnswerSum]
"""Counts by (category, attribute). Memory grows only with the number of pairs."""


def scan_answers(parts: Iterable[pa.Table], sums: AnswerSums, booleans: Pairs) -> Iterator[Scored]:
    """Yield every product with its scores, and add its answers to `sums`.

    Args:
        parts: of the attribute table, with `ANSWER_COLUMNS`.
        booleans: (category, attribute) of truth values, which are conclusions and stand nowhere in the text.
    """
    with duckdb.connect() as database:
        database.execute("CREATE TABLE booleans (category VARCHAR, attribute VARCHAR, is_one BOOLEAN DEFAULT true)")
        if booleans:
            database.executemany("INSERT INTO booleans (category, attribute) VALUES (?, ?)", [*booleans])
        for part in parts:
            database.register("part", part)
            database.execute(_ROWS)
            for category, attribute, *counts in database.execute(_ANSWERS).fetchall():
                sums[category, attribute] += AnswerSum(*counts)
            yield from map(Scored._make, database.execute(_PRODUCTS).fetchall())


_COLUMNS = ("source_file", "source_row", "product_id", "category", "stage", "error_code", "error", "row_json")
_MAX_EXAMPLES = 3
_MAX_MESSAGES = 10
# Limit of distinct messages counted. If every row has its own, there are none to show.
_MAX_COUNTED = 1000
_MAX_TEXT = 300


def read_dead_letters(parts: Parts, sums: dict[str, CategorySums]) -> tuple[DeadReason, ...]:
    """Return the reasons, most frequent first. Adds the rows of known categories to `sums`."""
    counts: Counter[tuple[str, str]] = Counter()
    messages: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    examples: defaultdict[tuple[str, str], list[DeadExample]] = defaultdict(list)
    for part in parts.read("dead_letter", _COLUMNS):
        for row in part.to_pylist():
            reason = (row["error_code"], row["stage"])
            counts[reason] += 1
            error = shortened(row["error"], _MAX_TEXT)
            if error in messages[reason] or len(messages[reason]) < _MAX_COUNTED:
                messages[reason][error] += 1
            if row["category"] is not None:
                sums.setdefault(row["category"], CategorySums()).dead_letters += 1
            if len(examples[reason]) < _MAX_EXAMPLES:
                place = f"{row['source_file']} row {row['source_row']}"
                source = shortened(row["row_json"], _MAX_TEXT)
                examples[reason].append(DeadExample(place, row["product_id"], row["category"], error, source))
    return tuple(
        DeadReason(
            *(code, stage, count, count / counts.total()),
            _worth_counting(messages[code, stage], code),
            tuple(examples[code, stage]),
        )
        for (code, stage), count in counts.most_common()
    )


def _worth_counting(messages: Counter[str], code: str) -> tuple[tuple[str, int], ...]:
    """Return the most frequent messages that several rows share; for `NO_SCHEMA` also unique ones (category names)."""
    frequent = messages.most_common(_MAX_MESSAGES)
    return tuple((text, count) for text, count in frequent if count > 1 or code == ErrorCode.NO_SCHEMA)
