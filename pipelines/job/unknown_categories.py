"""Counts of rows whose category has no schema, by the category's name: before, during and after a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from hpd_core.text.near_names import near_names, quoted
from pipelines.store.totals import MAX_UNKNOWN_CATEGORIES, NameCounts

_MAX_LENGTH = 200  # characters of a name; a longer one is a text in the wrong column
_MAX_END = 60  # characters kept of its end
_MAX_NAMES = 300  # names per shard
_SHOWN = 10


def count_unknown(categories: Iterable[str | None]) -> dict[str, int]:
    """Return the number of rows by category name, for the most frequent names; cut the middle of a very long name."""
    counts = Counter(_kept(name or "") for name in categories)
    return dict(counts.most_common(_MAX_NAMES))


def _kept(name: str) -> str:
    if len(name) <= _MAX_LENGTH:
        return name
    return f"{name[: _MAX_LENGTH - _MAX_END - 1]}…{name[-_MAX_END:]}"


def unknown_lines(counts: NameCounts, num_rows: int, schemas: Collection[str]) -> Iterator[str]:
    """Yield a line for each of the most frequent names, then one with the number of rows of other names.

    Args:
        counts: rows by name. If names were left out, each count is a lower bound and is shown as "at least".
        num_rows: all rows without a schema.
    """
    shown = counts.rows.most_common(_SHOWN)
    least, most = ("at least ", "at most ") if counts.are_least and shown else ("", "")
    for name, rows in shown:
        hint = near_names(schemas).hint(name)
        yield f"no schema for category {quoted(name)} ({least}{rows:,} {_rows(rows)})" + (f"; {hint}" if hint else "")
    if rest := num_rows - sum(rows for _, rows in shown):
        yield f"no schema for other categories ({most}{rest:,} {_rows(rest)})"


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def unknown_json(counts: NameCounts, num_rows: int, schemas: Collection[str]) -> dict[str, Any]:
    """Return the same as plain data: the most frequent categories, and the rows of all others."""
    near, shown = near_names(schemas), counts.rows.most_common(MAX_UNKNOWN_CATEGORIES)
    named = [
        {
            "category": name,
            "rows": rows,
            "near": [{"category": each.name, "difference": each.difference} for each in near.find(name)],
        }
        for name, rows in shown
    ]
    return {
        "categories": named,
        "other_rows": num_rows - sum(rows for _, rows in shown),
        "rows_are_least": counts.are_least,
    }
