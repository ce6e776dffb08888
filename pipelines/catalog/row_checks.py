"""Checks of a file's first rows: which will be dead letters, and whether all mapped columns exist."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpd_core import CategorySchema
from pipelines.catalog.paths import find_column, is_there, last_name
from pipelines.catalog.rows import DeadRows, RowRefusal, SourceRow
from pipelines.catalog.text_files import parse_line
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError

_HIVE_KEY = re.compile(r"/([^/=]+)=[^/]*(?=/)")

WRITE_FOLDERS_IN = "write it into the files (DuckDB reads it with hive_partitioning = true)"
"""Way out for a column that exists only in the names of folders."""


class _EveryCategory(dict[str, CategorySchema]):
    """Mapping that contains every category: the sample is not checked for known ones."""

    def __contains__(self, category: object) -> bool:
        return True


_EVERY_CATEGORY = _EveryCategory()


class FirstRows:
    """Checker of a file's first rows."""

    def __init__(self, name: str, config: InputConfig) -> None:
        self.num_rows = 0
        self.dead = DeadRows()
        self.ids: list[str] = []
        self._name, self._config = name, config

    def add(self, row: SourceRow) -> None:
        """Check a row, or count the reason why it could not be read."""
        self.num_rows += 1
        outcome = row.record(self._name, self._config, _EVERY_CATEGORY)
        if isinstance(outcome, RowRefusal):
            self.dead.add(outcome, self._name, row.number)
        else:
            self.ids.append(outcome.id)


class FirstLines:
    """Checker of the beginning of a JSONL file."""

    def __init__(self, name: str, config: InputConfig, num_sampled: int) -> None:
        self.missing = {
            column: {json.dumps(name).encode(), json.dumps(name, ensure_ascii=False).encode()}
            for column in config.columns
            for name in [last_name(column)]
        }
        """Mapped columns not found in any line yet, each with its last name as JSON may write it."""
        self.checked = FirstRows(name, config)
        self._name, self._config = name, config
        self._keys: dict[str, None] = {}
        self._problem = ""
        self._num_lines = self._num_rows = 0
        self._num_sampled = num_sampled

    def add(self, number: int, line: bytes) -> None:
        """Check a line that is not blank."""
        parsed = parse_line(line)
        self._num_lines += 1
        if parsed.row is None:
            self._problem = self._problem or f"line {number + 1}: {parsed.problem}"
        else:
            self._num_rows += 1
            self._see(parsed.row)
        if self._num_lines <= self._num_sampled:
            self.checked.add(SourceRow(number, parsed.row, RowRefusal("broken_line", parsed.problem or "")))

    def look_for_missing(self, line: bytes) -> None:
        """Look for missing columns in a later line; most lines need not be parsed."""
        if any(spelling in line for spellings in self.missing.values() for spelling in spellings):
            self._see(parse_line(line).row or {})

    def _see(self, row: Mapping[str, Any]) -> None:
        self._keys.update(dict.fromkeys(row))
        for column in [column for column in self.missing if is_there(row, column)]:
            del self.missing[column]

    def check(self) -> None:
        """Raise `UsageError` if no line could be read, or a mapped column is in none."""
        if self._num_rows:
            require_columns(self._config, list(self._keys), f"any line of {self._name}", [*self.missing])
        elif self._num_lines:
            raise UsageError(
                f"{self._name} is not JSON Lines: of {self._num_lines:,} lines looked at none is a JSON object; "
                f"{self._problem}"
            )


def require_columns(config: InputConfig, existing: Sequence[str], name: str, missing: Sequence[str] = ()) -> None:
    """Raise `UsageError`, listing the existing columns, if a mapped one does not exist or is `missing` within one."""
    for where, column in config.mapped:
        setting = f"column {column!r} ({where})"
        if (found := find_column(column, existing)) is not None and column not in missing:
            continue
        if found is not None:
            raise UsageError(f"{setting} is not in {name}: {found[0]!r} is there, but never with that in it")
        if column in folder_keys(name):
            raise UsageError(f"{setting} is in no file, only in the names of folders ({name}): {WRITE_FOLDERS_IN}")
        raise UsageError(f"{setting} is not in {name}; its columns: {', '.join(existing) or 'none'}")


def folder_keys(name: str) -> list[str]:
    """Return the columns in the names of a file's folders: `category` in `category=Shoes/part-0.parquet`."""
    return _HIVE_KEY.findall(f"/{name}")


def leads_nowhere(path: str, names: Sequence[str], facts: Mapping[str, Any]) -> bool:
    """Return whether a path leads into nested data in which its names never occur."""
    column, steps = find_column(path, names) or (path, ())
    below = [step for step in steps if isinstance(step, str)]
    if facts["paths"] is None:
        return False
    return column in facts["more"] and bool(below) and ".".join([column, *below]) not in facts["paths"]
