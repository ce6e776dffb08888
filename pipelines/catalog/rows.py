"""From a row of the catalog to a record, or to the reason why not. Pure functions."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hpd_core import CategorySchema, Record
from hpd_core.text.near_names import missing_schema
from hpd_core.types import is_encodable
from pipelines.config.extraction import InputConfig
from pipelines.errors import UsageError

_HALF_PAIR = "holds half a surrogate pair, which is no text"


@dataclass(frozen=True, slots=True)
class RowRefusal:
    """Why a row does not become a record: a code to count by and a message for a person."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """A JSONL line: its object, or why there is none."""

    row: dict[str, Any] | None
    problem: str | None = None


def parse_line(line: bytes) -> ParsedLine:
    """Parses one JSONL line; a byte order mark before the first object is skipped."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return ParsedLine(None, f"not UTF-8: {error.reason} at byte {error.start}")
    except json.JSONDecodeError as error:
        return ParsedLine(None, f"not JSON: {error.msg} at character {error.pos}")
    except RecursionError:
        return ParsedLine(None, "not readable: nested too deeply")
    if not isinstance(row, dict):
        return ParsedLine(None, f"a JSON object is needed, not {_json_type(row)}")
    return ParsedLine(row)


def default_id(file: str, number: int) -> str:
    """The id of a row whose catalog has no id column: its file's name without folders and ending, and its number."""
    return f"{file.rsplit('/', 1)[-1].rsplit('.', 1)[0]}:{number}"


def to_record(
    row: Mapping[str, Any], default_id: str, config: InputConfig, schemas: Mapping[str, CategorySchema]
) -> Record | RowRefusal:
    """The record in `row`, or the first reason why there is none."""
    product_id = default_id
    if config.id is not None:
        raw_id = row.get(config.id)
        if raw_id is None or raw_id == "":
            return RowRefusal("null_id", f"column {config.id!r} is empty")
        if isinstance(raw_id, bool) or not isinstance(raw_id, (str, int)):
            return RowRefusal(
                "wrong_type", f"column {config.id!r}: text or a whole number is needed, not {_json_type(raw_id)}"
            )
        product_id = str(raw_id)
        if not is_encodable(product_id):
            return RowRefusal("wrong_type", f"column {config.id!r} {_HALF_PAIR}")

    category = row.get(config.category)
    if category is None or category == "":
        return RowRefusal("null_category", f"column {config.category!r} is empty")
    if not isinstance(category, str):
        return RowRefusal("wrong_type", f"column {config.category!r}: text is needed, not {_json_type(category)}")
    if not is_encodable(category):
        return RowRefusal("wrong_type", f"column {config.category!r} {_HALF_PAIR}")
    if category not in schemas:
        return RowRefusal("no_schema", missing_schema(category, schemas))

    fields = {}
    for name, column in config.fields.items():
        text = field_text(row.get(column), config.list_separator)
        if text is None:
            kind = _json_type(row[column])
            return RowRefusal(
                "wrong_type", f"column {column!r}: text, a number or a list of them is needed, not {kind}"
            )
        if not is_encodable(text):
            return RowRefusal("wrong_type", f"column {column!r} {_HALF_PAIR}")
        fields[name] = text
    if not any(text.strip() for text in fields.values()):
        return RowRefusal("no_text", f"every text column is empty: {', '.join(config.fields.values())}")
    return Record(id=product_id, category=category, fields=fields)


def field_text(value: Any, separator: str) -> str | None:
    """The text of a cell: lists are joined, null is "". None if it is of a type that has no plain text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, decimal.Decimal)):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        items = [None if isinstance(item, (list, tuple)) else field_text(item, separator) for item in value]
        if any(item is None for item in items):
            return None
        return separator.join(item for item in items if item)
    return None


def row_json(row: Mapping[str, Any]) -> str:
    """The row as JSON text; what JSON cannot say (dates, bytes) is written as text."""
    text = json.dumps(row, ensure_ascii=False, default=str)
    return text if is_encodable(text) else json.dumps(row, default=str)


def check_column_types(config: InputConfig, schema: pa.Schema, name: str) -> None:
    """Raises `UsageError` if a mapped Parquet column can never hold what it is mapped to."""
    if config.id is not None:
        kind = _value_type(schema.field(config.id).type)
        if not (_is_text(kind) or pa.types.is_integer(kind)):
            raise _wrong_column(config.id, "input.id", kind, "text or whole numbers", name)
    kind = _value_type(schema.field(config.category).type)
    if not _is_text(kind):
        raise _wrong_column(config.category, "input.category", kind, "text", name)
    for column in config.fields.values():
        kind = _value_type(schema.field(column).type)
        item = _value_type(kind.value_type) if _is_list(kind) else kind
        if _is_list(item) or pa.types.is_nested(item) or _is_binary(item):
            raise _wrong_column(column, "input.fields", kind, "text, numbers or lists of them", name)


def _wrong_column(column: str, setting: str, kind: pa.DataType, wanted: str, name: str) -> UsageError:
    return UsageError(f"column {column!r} ({setting}) of {name} has the type {kind}; {wanted} are needed")


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _json_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else f"a {type(value).__name__}")
