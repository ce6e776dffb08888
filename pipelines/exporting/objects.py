"""Columns of a wide table in objects, as the schema file has their attributes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hpd_core.text.nesting import Place, held_twice, nested


def without_clashes(places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the columns' places, where the columns of an object with the name of another column stand alone."""
    found = dict(places)
    # A column that stands alone may have the name of another object.
    while clashing := {place for _, place in held_twice(found.values())}:
        found = {name: (name,) if place in clashing else place for name, place in found.items()}
    return found


def in_objects(table: pa.Table, places: Mapping[str, Place]) -> pa.Table:
    """Return the table with a struct for each object; it is null where all its fields are."""
    tree = nested((places[name], table[name].combine_chunks()) for name in table.column_names)
    required = {field.name for field in table.schema if not field.nullable}
    columns = {name: _column(node) for name, node in tree.items()}
    schema = pa.schema([pa.field(name, each.type, nullable=name not in required) for name, each in columns.items()])
    return pa.table(list(columns.values()), schema=schema)


def _column(node: Any) -> pa.Array:
    if not isinstance(node, dict):
        return node
    columns = [_column(each) for each in node.values()]
    return pa.StructArray.from_arrays(columns, names=list(node), mask=_all_null(columns))


def _all_null(columns: Iterable[pa.Array]) -> pa.Array:
    return functools.reduce(pc.and_, map(pc.is_null, columns))
