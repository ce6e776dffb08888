"""What the files of a shop have in common: which columns answers go to, and how each is filled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError
from pipelines.exporting.answers import Item, Product
from pipelines.exporting.left_out import LeftOut
from pipelines.exporting.value_forms import Rule

NO_COLUMN = "no column of the target for it; --columns names one"


@dataclass(frozen=True, slots=True)
class ShopWishes:
    """What the user says of a shop's file.

    Attributes:
        original: the file that is filled in; None: where the run read it.
        columns: by attribute; "" for one that is to be left out.
        overwrites: what stands in a column is replaced.
        identifier: Akeneo's column that says which product it is.
    """

    original: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    overwrites: bool = False
    identifier: str = "sku"


def read_columns(texts: Iterable[str]) -> dict[str, str]:
    """`attribute=column`, as on the command line. Raises `UsageError` for a text without "="."""
    columns = {}
    for text in texts:
        attribute, equals, column = text.partition("=")
        if not equals or not attribute:
            raise UsageError(f"--columns {text}: write attribute=column; the column is empty to leave it out")
        columns[attribute] = column
    return columns


class Extra(NamedTuple):
    """A second column for the same values: their unit."""

    name: str
    fill: Callable[[Sequence[Item]], str | None]


@dataclass(frozen=True, slots=True, eq=False)
class TargetColumn:
    """Where an attribute's values go. Each is equal to itself alone.

    Attributes:
        name: of the column.
        rule: what the column takes, for an attribute as its category has it.
        place: of the column in the original's header; None if it is a new one.
        unit: the column for the unit, which is filled with the value or not at all.
    """

    attribute: str
    name: str
    rule: Callable[[Attribute], Rule]
    place: int | None = None
    unit: Extra | None = None
    unit_place: int | None = None


class Cells(NamedTuple):
    """What a product's columns are filled with: the values of each, and how they are put together."""

    values: Mapping[TargetColumn, Sequence[str]]
    joints: Mapping[TargetColumn, str]
    units: Mapping[TargetColumn, str]

    def text(self, column: TargetColumn) -> str:
        """The values as one text."""
        return self.joints[column].join(self.values[column])


class Filler:
    """Fills the columns of products, and counts what their rules do not let in."""

    def __init__(
        self, columns: Sequence[TargetColumn], schemas: Mapping[str, CategorySchema], left_out: LeftOut
    ) -> None:
        self._columns = {column.attribute: column for column in columns}
        self._attributes = {
            (category, attribute.name): attribute
            for category, schema in schemas.items()
            for attribute in schema.attributes
        }
        self._left_out = left_out

    def fill(self, product: Product) -> Cells:
        """What goes into its columns."""
        values, joints, units = {}, {}, {}
        for attribute, items in product.values.items():
            column = self._columns.get(attribute)
            if column is None:
                self.leave_out(attribute, NO_COLUMN, product, items)
                continue
            rule = column.rule(self._attributes[product.category, attribute])
            filled = rule.fill(items)
            unit = column.unit.fill(items) if column.unit is not None and filled.reason is None else None
            if filled.reason is not None:
                self.leave_out(attribute, filled.reason, product, items)
            elif column.unit is not None and unit is None:
                self.leave_out(attribute, f"in {items[0].unit or 'no unit'}, which has no code there", product, items)
            else:
                values[column], joints[column] = filled.values, rule.joint
                if unit is not None:
                    units[column] = unit
        return Cells(values, joints, units)

    def leave_out(self, attribute: str, reason: str, product: Product, items: Sequence[Item]) -> None:
        """Counts an answer that is not written."""
        self._left_out.add(attribute, reason, product.product_id, "; ".join(item.text for item in items))


class Target(NamedTuple):
    """A shop's kind of file.

    Attributes:
        columns: the columns for attributes, of a file with this header; empty for a new file.
        note: what to know of a file with these new columns; "" if nothing.
    """

    name: str
    columns: Callable[[Sequence[str], Sequence[Attribute], ShopWishes], list[TargetColumn]]
    note: Callable[[Sequence[TargetColumn]], str]


def all_attributes(schemas: Mapping[str, CategorySchema]) -> list[Attribute]:
    """The attributes of all categories, in order; of several with one name the first."""
    found: dict[str, Attribute] = {}
    for schema in schemas.values():
        for attribute in schema.attributes:
            found.setdefault(attribute.name, attribute)
    return list(found.values())


def check_mapping(columns: Mapping[str, str], attributes: Iterable[Attribute]) -> None:
    """Raises `UsageError` if `--columns` names an attribute that the run did not ask for."""
    known = {attribute.name for attribute in attributes}
    if unknown := [name for name in columns if name not in known]:
        raise UsageError(
            f"--columns: the run has no attribute {unknown[0]!r}; it has {', '.join(map(repr, sorted(known)[:10]))}"
        )


def find_place(header: Sequence[str], name: str) -> int | None:
    """Where a column of this name stands, whatever its case."""
    folded = folded_name(name)
    return next((place for place, each in enumerate(header) if folded_name(each) == folded), None)


def folded_name(name: str) -> str:
    """A column's name without case, and with one kind of gap."""
    return re.sub(r"[\s_]+", " ", name).strip().casefold()
