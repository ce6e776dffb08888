"""Paths into nested columns: `details.Brand`, `images.alt`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MAX_DEPTH = 3
_MAX_PATHS = 200
_MIN_SHARE = 0.05  # of the rows, that have it
_NAME = re.compile(r"[^.\[\]]+")


def nested_paths(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths that lead to a value in enough of the rows, most frequent first."""
    counts = Counter(path for row in rows for path in dict.fromkeys(_paths(row)))
    needed = max(1, _MIN_SHARE * len(rows))
    return [path for path, count in counts.most_common(_MAX_PATHS) if count >= needed]


def _paths(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        yield from _below(name, value, 1)


def _below(path: str, value: Any, depth: int) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        pairs = item.items() if isinstance(item, dict) else [item] if _is_pair(item) else []
        for key, inner in pairs:
            if not isinstance(key, str) or not _NAME.fullmatch(key) or inner in (None, "", [], {}):
                continue
            if isinstance(inner, dict) or (isinstance(inner, list) and any(isinstance(each, dict) for each in inner)):
                if depth < _MAX_DEPTH:
                    yield from _below(f"{path}.{key}", inner, depth + 1)
            else:
                yield f"{path}.{key}"


def _is_pair(item: Any) -> bool:
    """Return whether an item is a pair of a Parquet map."""
    return isinstance(item, tuple) and len(item) == 2
