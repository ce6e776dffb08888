"""Paths into nested columns, as `details.Brand`, `images[0].alt`, `name[language=en*|*].value`: pure functions.

A column with the whole name wins, then the longest prefix of the path that is a column. A key of a list is taken from
each of its items. Text where nested data is needed is parsed as JSON, because some catalogs store it so.

`[key=wanted]` keeps the items of a list whose `key` is `wanted`. A `*` at the end of `wanted` matches by prefix and
keeps all items that share the first match's key: one of several languages. `|` separates preferences, best first.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.catalog.cells import CellError, kind_of, shortened
from pipelines.catalog.text_files import parse_json

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]|\[([^=\[\]]+)=([^\[\]]+)\]")


class Where(NamedTuple):
    """A step that filters a list: keeps items whose `key` is one of `wanted`, in order of preference."""

    key: str
    wanted: tuple[str, ...]

    def __repr__(self) -> str:
        """Return it as a path has it."""
        return f"[{self.key}={'|'.join(self.wanted)}]"

    def items(self, found: Sequence[Any]) -> list[Any]:
        """Return the items that are kept."""
        keys = [each.get(self.key) if isinstance(each, dict) else None for each in found]
        for wanted in self.wanted:
            first = next((key for key in keys if isinstance(key, str) and _is_wanted(key, wanted)), None)
            if first is not None:
                return [each for each, key in zip(found, keys, strict=True) if key == first]
        return []


def _is_wanted(key: str, wanted: str) -> bool:
    return key.startswith(wanted[:-1]) if wanted.endswith("*") else key == wanted


Step = str | int | Where
Steps = tuple[Step, ...]


@functools.lru_cache(maxsize=1024)
def _splits(path: str) -> tuple[tuple[str, Steps], ...]:
    """Return the possible splits of a path into a column name and steps, longest name first."""
    ends, steps, place = [], list[Step](), 0
    while place < len(path) and (step := _STEP.match(path, place)):
        steps.append(_step(step))
        place = step.end()
        ends.append(place)
    if place < len(path) or not steps:
        return ((path, ()),)
    return tuple((path[:end], tuple(steps[index + 1 :])) for index, end in reversed(list(enumerate(ends))))


def _step(written: re.Match[str]) -> Step:
    name, number, key, wanted = written.groups()
    if key is not None:
        return Where(key, tuple(wanted.split("|")))
    return name if name is not None else int(number)


def find_column(path: str, names: Collection[str]) -> tuple[str, Steps] | None:
    """Return the column that a path begins with, and the remaining steps; None if there is none."""
    if path in names:
        return path, ()
    return next(((name, steps) for name, steps in _splits(path) if name in names), None)


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path; None if there is none, a `CellError` if it leads through another type."""
    if path in row:
        return row[path]
    found = find_column(path, row)
    return None if found is None else _walk(row[found[0]], found[1])


def is_there(row: Mapping[str, Any], path: str) -> bool:
    """Return whether a row has the path, even if the value is null."""
    found = find_column(path, row)
    if found is None:
        return False
    name, steps = found
    if not steps:
        return True
    above = _walk(row[name], steps[:-1])
    if isinstance(above, dict) and steps[-1] in above:
        return True
    there = _walk(above, steps[-1:])
    return not isinstance(there, CellError) and there not in (None, [])


def last_name(path: str) -> str:
    """Return the last name in a path."""
    steps = [step for _, steps in _splits(path)[-1:] for step in steps if isinstance(step, str)]
    return steps[-1] if steps else _splits(path)[-1][0]


def _walk(value: Any, steps: Sequence[Step]) -> Any:
    for index, step in enumerate(steps):
        if value is None or value == "" or isinstance(value, CellError):
            return value
        if isinstance(value, str):
            if (parsed := _parsed(value)) is not None:
                value = parsed
            elif step in (0, -1):
                continue  # a list of one
            else:
                return _not_nested(value, step)
        if (
            isinstance(value, list)
            and isinstance(step, str)
            and value
            and all(isinstance(each, tuple) for each in value)
        ):
            value = dict(value)  # a map of Parquet
        if isinstance(step, Where) and isinstance(value, list | dict):
            value = step.items(value if isinstance(value, list) else [value])
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if -len(value) <= step < len(value) else None
        elif isinstance(value, list):
            return [item for each in value if (item := _walk(each, steps[index:])) is not None]
        elif isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        else:
            return _not_nested(value, step)
    return value


def _parsed(text: str) -> Any:
    return parse_json(text) if text.lstrip()[:1] in ("{", "[") else None


def _not_nested(value: Any, step: Step) -> CellError:
    shown = f" ({shortened(value)!r})" if isinstance(value, str) else ""
    wanted = f"an object with {step!r}" if isinstance(step, str) else "a list"
    return CellError("wrong_type", f"{wanted} is needed there, not {kind_of(value)}{shown}")


def parquet_columns(paths: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return the columns to read from a Parquet file, in Arrow's names: from a struct, only the wanted part."""
    names = []
    for path in paths:
        name, steps = find_column(path, schema.names) or (path, ())
        kind = schema.field(name).type if schema.names.count(name) == 1 else pa.null()
        for step in steps:
            kind = value_type(kind)
            if not (pa.types.is_struct(kind) and isinstance(step, str) and kind.get_field_index(step) >= 0):
                break
            name, kind = f"{name}.{step}", kind.field(kind.get_field_index(step)).type
        names.append(name)
    return list(dict.fromkeys(names))


def belongs_to(leaf_path: str, columns: Sequence[str]) -> bool:
    """Return whether a stored column, given its path in a Parquet file, is one of these columns or part of one."""
    # A list column `a` is stored as the leaf `a.list.element`.
    return any(leaf_path == column or leaf_path.startswith(f"{column}.") for column in columns)


def type_at(path: str, schema: pa.Schema) -> pa.DataType | None:
    """Return the type at a path in a Parquet file; None if only the rows can tell.

    Raise `KeyError`, with the available names, if the path leads nowhere.
    """
    name, steps = find_column(path, schema.names) or (path, ())
    return _type_at(schema.field(schema.names.index(name)).type, steps)


def _type_at(kind: pa.DataType, steps: Sequence[Step]) -> pa.DataType | None:
    for index, step in enumerate(steps):
        kind = value_type(kind)
        if pa.types.is_struct(kind) and isinstance(step, str):
            if (place := kind.get_field_index(step)) < 0:
                raise KeyError(step, [kind.field(number).name for number in range(kind.num_fields)])
            kind = kind.field(place).type
        elif pa.types.is_map(kind) and isinstance(step, str):
            kind = kind.item_type
        elif is_list(kind) and isinstance(step, int):
            kind = kind.value_type
        elif is_list(kind) and isinstance(step, Where):
            continue
        elif is_list(kind):
            inner = _type_at(kind.value_type, steps[index:])
            return None if inner is None else pa.list_(inner)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return None  # JSON, perhaps
        else:
            raise KeyError(step, [])
    return kind


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, independent of how they are stored."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return value_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind):
        return value_type(kind.storage_type)
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether the type's values are lists, however they are stored."""
    return is_one_of(kind, "list large_list fixed_size_list list_view large_list_view")


def is_one_of(kind: pa.DataType, names: str) -> bool:
    """Return whether Arrow has one of these names for the type."""
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names.split())


def is_uuid(kind: pa.DataType) -> bool:
    """Return whether the type is Arrow's extension type for UUIDs."""
    return getattr(kind, "extension_name", "") == "arrow.uuid"
