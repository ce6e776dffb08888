"""The columns of a wide table: who the product is, then a column for each attribute, and one for a number's unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError

Kind = Literal["text", "number", "boolean"]
PLACE = ("product_id", "category", "source_file", "source_row")
"""The columns in front: those of the run's tables."""

_TYPES = {"text": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}


@dataclass(frozen=True, slots=True)
class WideColumn:
    """The column of an attribute, of all categories that have one of this name.

    Attributes:
        name: of the column; the attribute's own, unless that is taken.
        unit_name: of the column for the unit; None for what is no number.
        unit: the unit that the schemas want, if it is one; answers say themselves which unit they have.
        is_list: several values are possible.
    """

    attribute: str
    name: str
    kind: Kind
    is_list: bool
    unit_name: str | None
    unit: str | None

    @property
    def type(self) -> pa.DataType:
        """Of the column, as Arrow knows it."""
        single = _TYPES[self.kind]
        return pa.list_(single) if self.is_list else single

    @property
    def unit_type(self) -> pa.DataType:
        """Of the column for the unit: where none is wanted, each value of a list may have its own."""
        return pa.list_(pa.string()) if self.is_list and self.unit is None else pa.string()


@dataclass(frozen=True, slots=True)
class WideColumns:
    """All columns behind `PLACE`, and those of each category."""

    columns: Sequence[WideColumn]
    by_category: Mapping[str, Sequence[str]]

    @property
    def schema(self) -> pa.Schema:
        """Of the whole table."""
        fields = [pa.field(name, pa.int64() if name == "source_row" else pa.string(), nullable=False) for name in PLACE]
        for column in self.columns:
            fields.append(pa.field(column.name, column.type))
            if column.unit_name is not None:
                fields.append(pa.field(column.unit_name, column.unit_type))
        return pa.schema(fields)


def wide_columns(schemas: Mapping[str, CategorySchema], *, only_text: bool = False) -> WideColumns:
    """The columns for what these schemas ask, in their order; a name that several categories have is one column.

    Args:
        only_text: numbers and booleans are texts, too.

    Raises `UsageError` if two columns would have one name.
    """
    same_name: defaultdict[str, list[Attribute]] = defaultdict(list)
    for schema in schemas.values():
        for attribute in schema.attributes:
            same_name[attribute.name].append(attribute)
    columns = [_column(name, attributes, only_text) for name, attributes in same_name.items()]
    _check_names(columns)
    names = {column.attribute: [each for each in (column.name, column.unit_name) if each] for column in columns}
    by_category = {
        category: [name for attribute in schema.attributes for name in names[attribute.name]]
        for category, schema in schemas.items()
    }
    return WideColumns(columns, by_category)


def _column(name: str, attributes: Sequence[Attribute], only_text: bool) -> WideColumn:
    types = {attribute.type for attribute in attributes}
    kind: Kind = "text"
    if not only_text and types in ({"number"}, {"boolean"}):
        kind = "number" if types == {"number"} else "boolean"
    units = {attribute.unit.want for attribute in attributes if attribute.unit is not None}
    return WideColumn(
        attribute=name,
        name=f"{name} (attribute)" if name in PLACE else name,
        kind=kind,
        is_list=any(attribute.multiple for attribute in attributes),
        # A number whose unit nobody asked for may have one, too: that which stands in the text.
        unit_name=f"{name} unit" if units or "number" in types else None,
        unit=next(iter(units)) if len(units) == 1 else None,
    )


def _check_names(columns: Iterable[WideColumn]) -> None:
    seen = dict.fromkeys(PLACE, "the product itself")
    for column in columns:
        for name in filter(None, (column.name, column.unit_name)):
            if name in seen:
                raise UsageError(
                    f"the column {name!r} would be that of the attribute {column.attribute!r} and of {seen[name]}; "
                    "rename one of them in the schemas"
                )
            seen[name] = f"the attribute {column.attribute!r}"
