"""Dead letters by reason, with examples."""

from __future__ import annotations

from collections import Counter, defaultdict

from hpd_core import ErrorCode
from pipelines.reporting.facts.dead_letters import DeadExample, DeadReason
from pipelines.reporting.formats import shortened
from pipelines.reporting.table_scan import CategorySums
from pipelines.store.run import Parts

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
