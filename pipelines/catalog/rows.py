"""Conversion of a catalog row to a record, or to the reason why not. Pure functions.

Lookup of the schemas' category that a cell names: by name, id or alias, or as a path of a catalog's own tree.

On a path, the first stretch that is a category wins: `A > B > C`, `B > C`, `C`, `A > B`, `B`, `A`.
Case and surrounding spaces are ignored. A name shared by two categories matches neither.
"""

from __future__ import annotations

import decimal
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpd_core import CategorySchema, Record
from hpd_core.text.near_names import near_names
from hpd_core.types import is_encodable
from pipelines.catalog.cells import CellError, cell_category, cell_id, cell_text, described
from pipelines.catalog.html_text import shown_record
from pipelines.catalog.paths import value_at
from pipelines.config.catalog_input import InputConfig
from pipelines.config.loading import PATH_SEPARATOR, Mapped

logger = logging.getLogger(__name__)

MAX_CHARS = 2_000_000
"""Maximum characters of a row's id and texts: no model's context fits more. Checking takes 200 bytes a character."""


@dataclass(frozen=True, slots=True)
class RowRefusal:
    """Refusal of a row that does not become a record: a code to count by and a message for a person."""

    code: str
    message: str


class SourceRow(NamedTuple):
    """A row as read. `values` is None, and `problem` set, if it could not be read. An unreadable cell is a `CellError`.

    In JSONL, `raw` is the line. In a staged file, it is the text of a row that could not be read.
    """

    number: int
    values: dict[str, Any] | None
    problem: RowRefusal | None = None
    raw: bytes | None = None

    def record(self, file: str, config: InputConfig, schemas: Mapping[str, CategorySchema]) -> Record | RowRefusal:
        """Return `to_record` of the row of a file, or the reason why it could not be read."""
        if self.values is None:
            return self.problem or RowRefusal("unreadable", "the row could not be read")
        return to_record(self.values, default_id(file, self.number), config, schemas)


@dataclass(slots=True)
class DeadRows:
    """Counts of rows that will be dead letters, by reason, with the first row of each reason as an example."""

    rows: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, refusal: RowRefusal, file: str, row: int) -> None:
        """Count one row."""
        self.rows[refusal.code] += 1
        self.examples.setdefault(refusal.code, f"{file}, row {row}: {refusal.message}")


def default_id(file: str, number: int) -> str:
    """Return the id of a row in a catalog without id column: its file's stem and its number."""
    return f"{file.rsplit('/', 1)[-1].rsplit('.', 1)[0]}:{number}"


def to_record(
    row: Mapping[str, Any], default_id: str, config: InputConfig, schemas: Mapping[str, CategorySchema]
) -> Record | RowRefusal:
    """Return the record in `row`, or the first reason why there is none. No row content can make it raise."""
    try:
        return _to_record(row, default_id, config, schemas)
    except MemoryError:
        raise  # of the process, not of the row
    except Exception as error:
        # Nobody knows of such a row. It is no reason for the others not to be read.
        logger.exception("a row could not be read")
        return RowRefusal("unreadable", f"the row cannot be read: {described(error)}")


def _to_record(
    row: Mapping[str, Any], default_id: str, config: InputConfig, schemas: Mapping[str, CategorySchema]
) -> Record | RowRefusal:
    try:
        product_id = default_id
        if config.id is not None:
            product_id = _id(row, config.id)
            if not product_id:
                return RowRefusal("null_id", f"column {str(config.id)!r} is empty")
        category = find_category(row, config, schemas)
        if not category:
            return RowRefusal("null_category", f"column {str(config.category)!r} is empty")
        if category not in schemas:
            return RowRefusal("no_schema", near_names(schemas).missing(category))
        fields = {name: mapped_text(row, mapped, config) for name, mapped in config.texts.items()}
    except _ColumnError as bad:
        return RowRefusal(bad.code, f"column {bad.column!r}: {bad.reason}")
    num_chars = len(product_id) + sum(map(len, fields.values()))
    if num_chars > MAX_CHARS:
        return RowRefusal("too_long", f"the row has {num_chars:,} characters of text; {MAX_CHARS:,} are the most")
    record = shown_record(Record(product_id, category, fields), config.html)
    if not any(record.fields[name] for name in config.fields):
        return RowRefusal("no_text", f"every text column is empty: {', '.join(map(str, config.fields.values()))}")
    return record


def row_id(row: Mapping[str, Any], config: InputConfig) -> str | None:
    """Return the id of a row that need not be a record; None if it has none or it cannot be read."""
    if config.id is None:
        return None
    try:
        return _id(row, config.id) or None
    except CellError:
        return None


def row_category(row: Mapping[str, Any], config: InputConfig) -> str | None:
    """Return the category as written in a row that need not be a record; None if it is empty or unreadable."""
    try:
        return stated_category(row, config) or None
    except CellError:
        return None


def known_category(
    row: Mapping[str, Any], config: InputConfig, schemas: Mapping[str, CategorySchema]
) -> str | RowRefusal:
    """Return a row's category: the schemas' name if it is theirs, else as written; or why it cannot be read."""
    try:
        return find_category(row, config, schemas)
    except _ColumnError as bad:
        return RowRefusal(bad.code, f"column {bad.column!r}: {bad.reason}")


def mapped_text(row: Mapping[str, Any], mapped: Mapped, config: InputConfig) -> str:
    """Return a row's text for a field. Raise `CellError`."""
    if mapped.text is not None:
        return mapped.text
    texts = _cells(row, mapped, lambda cell: cell_text(cell, config.list_separator))
    return texts[0] if mapped.join is None else (mapped.separator or " ").join(text for text in texts if text)


def _id(row: Mapping[str, Any], mapped: Mapped) -> str:
    """Return the id in a row; "" if one of its columns is empty."""
    ids = _cells(row, mapped, cell_id)
    return (mapped.separator or " ").join(ids) if all(ids) else ""


def _cells(row: Mapping[str, Any], mapped: Mapped, read: Callable[[Any], str]) -> list[str]:
    texts = []
    for column in mapped.columns:
        try:
            texts.append(read(value_at(row, column)))
        except CellError as error:
            raise _ColumnError(column, error) from None
    return texts


class _ColumnError(CellError):
    """A cell that cannot be read, with its column."""

    def __init__(self, column: str, error: CellError) -> None:
        super().__init__(error.code, error.reason)
        self.column = column


def row_json(row: Mapping[str, Any]) -> str:
    """Return the row as JSON text; values outside JSON (dates, bytes, infinity) become text, NaN becomes null."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_as_text)
    except ValueError:
        text = json.dumps(_finite(row), ensure_ascii=False, default=_as_text)
    return text if is_encodable(text) else json.dumps(json.loads(text))


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


Key = tuple[str, ...]


class CategoryNames:
    """Lookup of categories by name, id, alias or path."""

    def __init__(self, schemas: Mapping[str, CategorySchema]) -> None:
        self.schemas = schemas
        self._others: dict[str, str | None] = {}
        self._paths: dict[Key, str | None] = {}
        for name, schema in schemas.items():
            for other in (*schema.aliases, *((schema.id,) if schema.id is not None else ())):
                _add(self._others, other, name)
            for path in (name, *schema.aliases):
                _add(self._paths, _folded(path.split(PATH_SEPARATOR)), name)

    def named(self, text: str) -> str | None:
        """Return the category with this name, id or alias; None if there is none."""
        return text if text in self.schemas else self._others.get(text)

    def on_path(self, parts: list[str]) -> str | None:
        """Return the category named by a stretch of a path, tried leaf first and longest first; else None."""
        key = _folded(parts)
        stretches = (key[start:end] for end in range(len(key), 0, -1) for start in range(end))
        return next((found for stretch in stretches if (found := self._paths.get(stretch))), None)

    def at_level(self, parts: list[str], level: int) -> str | None:
        """Return the category named by part `level` of a path, alone or with parts above it; else None."""
        key = _folded(parts)
        end = level if level > 0 else len(key) + level + 1
        if not 0 < end <= len(key):
            return None
        return next((found for start in range(end) if (found := self._paths.get(key[start:end]))), None)


def _add(names: dict[Any, str | None], key: Any, category: str) -> None:
    names[key] = category if names.setdefault(key, category) == category else None


def _folded(parts: list[str]) -> Key:
    return tuple(" ".join(part.split()).casefold() for part in parts if part.strip())


_last: CategoryNames | None = None


def _names(schemas: Mapping[str, CategorySchema]) -> CategoryNames:
    global _last
    if (found := _last) is None or found.schemas is not schemas:
        found = _last = CategoryNames(schemas)
    return found


def find_category(row: Mapping[str, Any], config: InputConfig, schemas: Mapping[str, CategorySchema]) -> str:
    """Return the category of a row: one of the schemas', else the text in the row; "" if empty. Raise `CellError`."""
    mapped = config.category
    try:
        said = list(_paths(row, mapped)) if mapped.is_path else [stated_category(row, config)]
    except CellError as error:
        raise _ColumnError(str(mapped), error) from None
    text = said[0] if said else ""
    if mapped.is_path:
        found = (_on_path(path, mapped, _names(schemas)) for path in said)
        return next((each for each in found if each is not None), text)
    return text if not text or text in schemas else _names(schemas).named(text) or text


def stated_category(row: Mapping[str, Any], config: InputConfig) -> str:
    """Return the category as written in a row, "" if empty. Raise `CellError`."""
    mapped = config.category
    if mapped.is_path:
        return next(_paths(row, mapped), "")
    return cell_category(value_at(row, mapped.column)) if mapped.column is not None else mapped.text or ""


def _paths(row: Mapping[str, Any], mapped: Mapped) -> Iterator[str]:
    """Return the paths in a row's cell. A list is one path, unless some item holds the separator."""
    value = value_at(row, mapped.column or "")
    separator = mapped.separator or PATH_SEPARATOR
    items = [text for each in (value if isinstance(value, list) else [value]) if (text := cell_category(each).strip())]
    if isinstance(value, list) and not any(separator.strip() in item for item in items):
        items = [f" {separator.strip()} ".join(items)] if items else []
    return iter(items)


def _on_path(path: str, mapped: Mapped, names: CategoryNames) -> str | None:
    if (named := names.named(path)) is not None:
        return named
    separator = mapped.separator or PATH_SEPARATOR
    parts = path.split(separator.strip() or separator)
    return names.on_path(parts) if mapped.level is None else names.at_level(parts, mapped.level)
