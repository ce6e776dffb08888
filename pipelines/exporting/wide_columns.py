"""Columns of a wide table: the product's place, then one for each attribute; for numbers also ends and units."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import Attribute, CategorySchema
from hpd_core.plain_data import Place, dotted, held_twice, nested
from pipelines.errors import UsageError

Kind = Literal["text", "number", "boolean"]
PLACE = ("product_id", "category", "source_file", "source_row")
"""First columns, which identify the product as in the run's tables."""

FOR_READERS = {"product title": pa.string(), "least confidence": pa.float64()}
"""Columns of a sheet for people: the product's first text, and the confidence of its least certain value here."""

_TYPES = {"text": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}


@dataclass(frozen=True, slots=True)
class WideColumn:
    """Column of an attribute, for all categories that have one of this name.

    Attributes:
        name: name of the column; the attribute's own, unless that is taken.
        is_list: whether several values are possible.
        unit_name: name of the column for the unit; None for an attribute without units.
        has_one_unit: whether all values of a cell have the same unit; otherwise each value of a list has its own.
        measured: categories whose attribute has units: a quantity in a plain text is a text.
        outer: objects that contain it, the outermost first; empty if categories differ in them.
    """

    attribute: str
    name: str
    kind: Kind
    is_list: bool
    unit_name: str | None
    has_one_unit: bool
    measured: frozenset[str]
    outer: Place

    @property
    def end_names(self) -> Sequence[str]:
        """Names of the columns for both ends of a range; empty if the column is not of numbers."""
        return (f"{self.attribute} min", f"{self.attribute} max") if self.kind == "number" else ()

    @property
    def fields(self) -> Sequence[pa.Field]:
        """Fields of the columns, in their order."""
        fields = [pa.field(self.name, self.type), *(pa.field(name, self.type) for name in self.end_names)]
        return [*fields, pa.field(self.unit_name, self.unit_type)] if self.unit_name is not None else fields

    @property
    def places(self) -> Mapping[str, Place]:
        """Place of each of the columns in a file that has objects."""
        head = dotted([*self.outer, ""])
        return {field.name: (*self.outer, field.name.removeprefix(head)) for field in self.fields}

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        single = _TYPES[self.kind]
        return pa.list_(single) if self.is_list else single

    @property
    def unit_type(self) -> pa.DataType:
        """Arrow type of the column for the unit."""
        return pa.list_(pa.string()) if self.is_list and not self.has_one_unit else pa.string()


@dataclass(frozen=True, slots=True)
class WideColumns:
    """All columns after `PLACE`, and those of each category; `for_readers`: with `FOR_READERS` in between."""

    columns: Sequence[WideColumn]
    by_category: Mapping[str, Sequence[str]]
    for_readers: bool = False

    @property
    def schema(self) -> pa.Schema:
        """Schema of the whole table."""
        fields = [pa.field(name, pa.int64() if name == "source_row" else pa.string(), nullable=False) for name in PLACE]
        fields += [pa.field(*pair) for pair in FOR_READERS.items() if self.for_readers]
        return pa.schema([*fields, *(field for column in self.columns for field in column.fields)])

    @property
    def places(self) -> Mapping[str, Place]:
        """Place of each column of the table in a file that has objects."""
        own = {name: (name,) for name in PLACE}
        return without_clashes(
            {**own, **{name: each for column in self.columns for name, each in column.places.items()}}
        )


def wide_columns(
    schemas: Mapping[str, CategorySchema],
    *,
    only_text: bool = False,
    takes_raw: bool = False,
    for_readers: bool = False,
) -> WideColumns:
    """Return the columns for the schemas' attributes, in their order; a name of several categories is one column.

    Args:
        only_text: whether numbers and booleans are texts, too.
        for_readers: whether to add `FOR_READERS`.
        takes_raw: whether values without a normalised form are included, so that all are texts and units may be
            missing.

    Raises `UsageError` if two columns would have one name.
    """
    same_name: defaultdict[str, dict[str, Attribute]] = defaultdict(dict)
    for category, schema in schemas.items():
        for attribute in schema.attributes:
            same_name[attribute.name][category] = attribute
    taken = [*PLACE, *(FOR_READERS if for_readers else ())]
    columns = [_column(name, attributes, only_text, takes_raw) for name, attributes in same_name.items()]
    beside = {field.name for column in columns for field in column.fields[1:]}
    columns = [
        replace(column, name=f"{column.name} (attribute)") if column.name in (*taken, *beside) else column
        for column in columns
    ]
    _check_names(columns, taken)
    names = {column.attribute: [field.name for field in column.fields] for column in columns}
    by_category = {
        category: [name for attribute in schema.attributes for name in names[attribute.name]]
        for category, schema in schemas.items()
    }
    return WideColumns(columns, by_category, for_readers)


def _column(name: str, by_category: Mapping[str, Attribute], only_text: bool, takes_raw: bool) -> WideColumn:
    attributes = by_category.values()
    types = {attribute.type for attribute in attributes}
    kind: Kind = "text"
    if not (only_text or takes_raw) and types in ({"number"}, {"boolean"}):
        kind = "number" if types == {"number"} else "boolean"
    outers = {attribute.place[:-1] for attribute in attributes}
    measured = {
        category: each for category, each in by_category.items() if each.type == "number" or each.unit is not None
    }
    units = {None if each.unit is None else each.unit.want for each in measured.values()}
    return WideColumn(
        attribute=name,
        name=name,
        kind=kind,
        is_list=any(attribute.multiple for attribute in attributes),
        # A number without a wanted unit may have one, too: each value the one in its text.
        unit_name=f"{name} unit" if measured else None,
        has_one_unit=len(units) == 1 and None not in units and not takes_raw,
        measured=frozenset(measured),
        outer=outers.pop() if len(outers) == 1 else (),
    )


def _check_names(columns: Iterable[WideColumn], taken: Sequence[str]) -> None:
    seen = dict.fromkeys(taken, "the product itself")
    for column in columns:
        for name in (field.name for field in column.fields):
            if name in seen:
                raise UsageError(
                    f"the column {name!r} would be that of the attribute {column.attribute!r} and of {seen[name]}; "
                    "rename one of them in the schemas"
                )
            seen[name] = f"the attribute {column.attribute!r}"


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
    columns = {name: _objects_column(node) for name, node in tree.items()}
    schema = pa.schema([pa.field(name, each.type, nullable=name not in required) for name, each in columns.items()])
    return pa.table(list(columns.values()), schema=schema)


def _objects_column(node: Any) -> pa.Array:
    if not isinstance(node, dict):
        return node
    columns = [_objects_column(each) for each in node.values()]
    return pa.StructArray.from_arrays(columns, names=list(node), mask=_all_null(columns))


def _all_null(columns: Iterable[pa.Array]) -> pa.Array:
    return functools.reduce(pc.and_, map(pc.is_null, columns))
