"""Profiles of a catalog's columns: types, empty cells, different values, lengths."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import pyarrow as pa
import pydantic
import yaml

from pipelines.catalog.cells import JsonNumber, field_text
from pipelines.catalog.paths import is_list, value_type

_MAX_DIFFERENT = 50_000  # values that are counted; a column with more of them is considered unique


@dataclass(slots=True)
class ProfiledColumn:
    """Profile of a column, from the sampled rows.

    Attributes:
        stored_type: type named by the file; for JSONL, the types seen.
        kinds: kinds of its values: text, integer, number, truth, date, list, nested.
        num_rows: sampled rows; `num_empty` of them hold null or blank text.
        num_chars, num_words: sums over the texts.
        num_links, num_spaced: numbers of texts that are a link, or contain a space.
        different: different values, up to a limit.
        is_everywhere: whether every sampled file has it.
    """

    name: str
    stored_type: str = ""
    kinds: set[str] = field(default_factory=set)
    num_rows: int = 0
    num_empty: int = 0
    num_chars: int = 0
    num_words: int = 0
    num_links: int = 0
    num_spaced: int = 0
    different: set[str] = field(default_factory=set)
    is_everywhere: bool = True

    @property
    def num_filled(self) -> int:
        """Number of cells that are not empty."""
        return self.num_rows - self.num_empty

    @property
    def mean_chars(self) -> float:
        """Mean number of characters of the filled cells."""
        return self.num_chars / self.num_filled if self.num_filled else 0.0

    @property
    def mean_words(self) -> float:
        """Mean number of words of the filled cells."""
        return self.num_words / self.num_filled if self.num_filled else 0.0

    @property
    def share_empty(self) -> float:
        """Share of empty cells in the sampled rows."""
        return self.num_empty / self.num_rows if self.num_rows else 0.0

    @property
    def is_unique(self) -> bool:
        """Whether no value was seen twice."""
        return bool(self.num_filled) and len(self.different) >= min(self.num_filled, _MAX_DIFFERENT)

    def may_be(self, *kinds: str) -> bool:
        """Return whether its values have only these kinds, and there are any (or could be, in a file without rows)."""
        return bool(self.kinds) and self.kinds <= set(kinds)

    def add(self, value: Any) -> None:
        """Add one cell to the profile."""
        self.num_rows += 1
        text = field_text(value, "\n")
        if value is not None:
            self.kinds.add(_value_kind(value) if text is not None else "nested")
        if text is None:
            return
        if not text.strip():
            self.num_empty += 1
            return
        self.num_chars += len(text)
        self.num_words += len(text.split())
        self.num_links += text.startswith(("http://", "https://"))
        self.num_spaced += " " in text.strip()
        if len(self.different) < _MAX_DIFFERENT:
            self.different.add(text)


def look_at(rows: Iterable[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> list[ProfiledColumn]:
    """Profile the columns of `rows`; those in `types` come first, in its order."""
    columns = {name: ProfiledColumn(name, str(kind), arrow_kinds(kind)) for name, kind in types.items()}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if name not in columns:
                columns[name] = ProfiledColumn(name, num_rows=number, num_empty=number)
            columns[name].add(value)
        for column in columns.values():
            if column.num_rows == number:  # the row does not have it
                column.add(None)
    for column in columns.values():
        column.stored_type = column.stored_type or " or ".join(sorted(column.kinds)) or "null"
    return list(columns.values())


def _value_kind(value: Any) -> str:
    """Return the kind of one value that has a plain text."""
    if isinstance(value, JsonNumber):
        return "integer" if value.removeprefix("-").isdigit() else "number"
    kinds: Sequence[tuple[type | tuple[type, ...], str]] = (
        (bool, "truth"),
        ((str, bytes, uuid.UUID), "text"),
        (int, "integer"),
        ((float, decimal.Decimal), "number"),
        ((datetime.date, datetime.time), "date"),
    )
    return next((kind for types, kind in kinds if isinstance(value, types)), "list")


def arrow_kinds(stored: pa.DataType) -> set[str]:
    """Return the kind of a column by its type alone, so that a file without rows has kinds, too; empty for null."""
    stored = value_type(stored)
    if is_list(stored):
        return {"list"} if arrow_kinds(stored.value_type).isdisjoint({"list", "nested"}) else {"nested"}
    tests = (
        (pa.types.is_boolean, "truth"),
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, "number"),
        (pa.types.is_date, "date"),
        (pa.types.is_time, "date"),
        (pa.types.is_timestamp, "date"),
        (pa.types.is_string, "text"),
        (pa.types.is_large_string, "text"),
        (pa.types.is_string_view, "text"),
    )
    if pa.types.is_null(stored):
        return set()
    return {next((kind for test, kind in tests if test(stored)), "nested")}


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


@dataclass(frozen=True, slots=True)
class KnownFeed:
    """Purposes of the columns of a published form. Of several columns, the first that is filled is used.

    Attributes:
        id, category: candidate columns; a category may be a path.
        fields: name in the prompt -> candidate columns.
        signs: columns that identify the form.
    """

    name: str
    id: tuple[str, ...]
    category: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]
    signs: tuple[str, ...]


_FEEDS = pydantic.TypeAdapter(tuple[KnownFeed, ...]).validate_python(
    yaml.safe_load(resources.files(__package__).joinpath("known_feeds.yaml").read_text(encoding="utf-8"))
)


def known_feed(columns: Collection[str]) -> KnownFeed | None:
    """Return the published form of a file with these columns, or None."""
    folded = {name.casefold() for name in columns}
    return next((feed for feed in _FEEDS if {sign.casefold() for sign in feed.signs} <= folded), None)
