"""Type checks of mapped Parquet columns, before any work starts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipelines.catalog.paths import find_column, type_at
from pipelines.catalog.value_types import is_list, is_uuid, value_type
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError

# Extension types whose values are what they are stored as, or have a text of their own.
_PLAIN_EXTENSIONS = ("arrow.uuid", "arrow.json", "arrow.bool8", "arrow.opaque")
_EXTENSION_KEY = b"ARROW:extension:name"


def check_column_types(config: InputConfig, schema: pa.Schema, name: str) -> None:
    """Raise `UsageError` if a mapped Parquet column is duplicated or its type can never hold what it is mapped to.

    Columns of bytes are accepted, because text is often stored so. Bytes that are not UTF-8 cost only their row.
    """
    for setting, column in config.mapped:
        field = _only_field(column, setting, schema, name)
        if field is None:
            continue
        kind = value_type(field.type)
        item = value_type(kind.value_type) if is_list(kind) else kind
        if setting == "input.id":
            is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_float64(kind)
            is_right, wanted = _is_text(kind) or is_exact or is_uuid(field.type), "text or whole numbers"
        elif setting == "input.category":
            is_right, wanted = _is_text(item if config.category.is_path else kind), "text"
        else:
            is_right, wanted = _has_text(item), "text, numbers or lists of them"
        if _extension(field) is not None or not is_right:
            raise _wrong_column(field, setting, wanted, name)


def check_doubled(config: InputConfig, names: Sequence[str], name: str) -> None:
    """Raise `UsageError` if a mapped column occurs twice among a file's column names."""
    for setting, path in config.mapped:
        column, _ = find_column(path, names) or (path, ())
        if names.count(column) > 1:
            raise _doubled(column, setting, names.count(column), name)


def byte_columns(config: InputConfig, schema: pa.Schema) -> tuple[str, ...]:
    """Return the mapped columns that hold bytes or lists of bytes: mostly text that Parquet does not mark as such."""
    types = {column: type_at(column, schema) for column in config.columns}
    kinds = {column: value_type(kind) for column, kind in types.items() if kind is not None}
    items = {column: value_type(kind.value_type) if is_list(kind) else kind for column, kind in kinds.items()}
    return tuple(column for column, kind in items.items() if _is_bytes(kind))


def _only_field(path: str, setting: str, schema: pa.Schema, name: str) -> pa.Field | None:
    """Return the field at a path, named after it; None if only the rows can tell. Raise `UsageError`."""
    column, steps = find_column(path, schema.names) or (path, ())
    places = schema.get_all_field_indices(column)
    if len(places) > 1:
        raise _doubled(column, setting, len(places), name)
    if not steps:
        return schema.field(places[0])
    try:
        kind = type_at(path, schema)
    except KeyError as error:
        step, names = error.args
        there = f"; there are {', '.join(names)}" if names else ""
        raise UsageError(f"column {path!r} ({setting}): {column!r} of {name} has no {step!r}{there}") from None
    return None if kind is None else pa.field(path, kind)


def _doubled(column: str, setting: str, count: int, name: str) -> UsageError:
    return UsageError(
        f"column {column!r} ({setting}) stands {count} times in {name}: which one is meant cannot be told; rename or "
        "drop the others"
    )


def _wrong_column(field: pa.Field, setting: str, wanted: str, name: str) -> UsageError:
    shown = _extension(field) or field.type
    column = field.name.replace('"', '""')
    is_float = setting == "input.id" and pa.types.is_floating(field.type)
    written, target = ("whole numbers", "BIGINT") if is_float else ("text", "VARCHAR")
    return UsageError(
        f"column {field.name!r} ({setting}) of {name} has the type {shown}; {wanted} are needed. Write it as {written}"
        f', in DuckDB with SELECT * REPLACE (CAST("{column}" AS {target}) AS "{column}"), or name another column'
    )


def _extension(field: pa.Field) -> str | None:
    """Return the name of an extension type whose stored values mean something else (months as numbers)."""
    name = getattr(field.type, "extension_name", None)
    if name is None and (field.metadata or {}).get(_EXTENSION_KEY):
        name = field.metadata[_EXTENSION_KEY].decode(errors="replace")
    if name is None or name in _PLAIN_EXTENSIONS:
        return None
    stored = getattr(field.type, "storage_type", field.type)
    return None if _is_written(value_type(stored)) else str(name)


def _is_written(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(test(kind) for test in tests)


def _is_text(kind: pa.DataType) -> bool:
    return _is_written(kind) or _is_bytes(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        *(pa.types.is_binary, pa.types.is_large_binary),
        *(pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    )
    return any(test(kind) for test in tests)


def _has_text(kind: pa.DataType) -> bool:
    tests = (
        *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        *(pa.types.is_date, pa.types.is_time, pa.types.is_timestamp),
    )
    return _is_text(kind) or is_uuid(kind) or any(test(kind) for test in tests)
