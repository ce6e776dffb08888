"""Interface of shops to an export: their files, the columns for answers, how each is filled (see pipelines/shops)."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from hpd_core import Attribute, CategorySchema
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedItem, ExportedProduct, LeftOutAnswers
from pipelines.exporting.value_forms import Rule

NO_COLUMN = "no column of the target for it; --columns names one"
TAKEN = "another attribute of the product goes into the same column"


@dataclass(frozen=True, slots=True)
class ShopWishes:
    """User's options for a shop's file.

    Attributes:
        original: the file to fill in; None for the place where the run read it.
        columns: column by attribute; "" to leave an attribute out.
        overwrites: whether values that stand in a column are replaced.
        identifier: Akeneo's column that identifies the product.
    """

    original: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    overwrites: bool = False
    identifier: str = "sku"


def read_columns(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts `attribute=column` of the command line. Raises `UsageError` for a text without "=" or attribute."""
    columns = {}
    for text in texts:
        attribute, equals, column = text.partition("=")
        if not equals or not attribute:
            raise UsageError(f"--columns {text}: write attribute=column; the column is empty to leave it out")
        columns[attribute] = column
    return columns


class TargetAsked(NamedTuple):
    """Attribute, and the categories that ask for it in this form: one name may have several forms."""

    attribute: Attribute
    categories: frozenset[str]


class Extra(NamedTuple):
    """Second column for the same values: their unit."""

    name: str
    fill: Callable[[Sequence[ExportedItem]], str | None]


@dataclass(frozen=True, slots=True, eq=False)
class TargetColumn:
    """Column for an attribute's values. Each equals only itself; several may share one column of the file.

    Attributes:
        attribute: name of the attribute.
        asked: the attribute, and its categories.
        name: name of the column.
        rule: function that returns the column's rule for an attribute as its category has it.
        place: index of the column in the original's header; None if it is a new one.
        unit: column for the unit, which is filled with the value or not at all.
        detail: name of the attribute within a cell, in a column with many attributes in a cell; None otherwise.
    """

    asked: TargetAsked
    name: str
    rule: Callable[[Attribute], Rule]
    place: int | None = None
    unit: Extra | None = None
    unit_place: int | None = None
    detail: str | None = None

    @property
    def attribute(self) -> str:
        """Name of the attribute."""
        return self.asked.attribute.name

    @property
    def target(self) -> Hashable:
        """Key that is equal for all that share a column of the file, or a detail of it."""
        where = self.name if self.place is None else self.place
        return where if self.detail is None else (where, folded_name(self.detail))


class Cells(NamedTuple):
    """Cells of a product: the values, separator and unit of each column."""

    values: Mapping[TargetColumn, Sequence[str]]
    joints: Mapping[TargetColumn, str]
    units: Mapping[TargetColumn, str]

    def text(self, column: TargetColumn) -> str:
        """Return the values of a column as one text."""
        return self.joints[column].join(self.values[column])


class Filler:
    """Filler of products' columns, which counts answers that their rules refuse."""

    def __init__(
        self, columns: Sequence[TargetColumn], schemas: Mapping[str, CategorySchema], left_out: LeftOutAnswers
    ) -> None:
        self._columns = {
            (category, column.attribute): column for column in columns for category in column.asked.categories
        }
        self._attributes = {
            (category, attribute.name): attribute
            for category, schema in schemas.items()
            for attribute in schema.attributes
        }
        self._left_out = left_out
        # A rule may look at a whole vocabulary.
        self._rules: dict[tuple[str, str], Rule] = {}

    def fill(self, product: ExportedProduct) -> Cells:
        """Return the cells of a product."""
        values, joints, units = {}, {}, {}
        targets: set[Hashable] = set()
        for attribute, items in product.values.items():
            column = self._columns.get((product.category, attribute))
            if column is None:
                self.leave_out(attribute, NO_COLUMN, product, items)
                continue
            if column.target in targets:
                self.leave_out(attribute, TAKEN, product, items)
                continue
            rule = self._rule(column, product.category)
            filled = rule.fill(items)
            unit = column.unit.fill(items) if column.unit is not None and filled.reason is None else None
            if filled.reason is not None:
                self.leave_out(attribute, filled.reason, product, items)
            elif column.unit is not None and unit is None:
                self.leave_out(attribute, f"in {items[0].unit or 'no unit'}, which has no code there", product, items)
            else:
                targets.add(column.target)
                values[column], joints[column] = filled.values, rule.joint
                if unit is not None:
                    units[column] = unit
        return Cells(values, joints, units)

    def _rule(self, column: TargetColumn, category: str) -> Rule:
        """Return the column's rule for the attribute as the category has it."""
        key = category, column.attribute
        if key not in self._rules:
            self._rules[key] = column.rule(self._attributes[key])
        return self._rules[key]

    def leave_out(self, attribute: str, reason: str, product: ExportedProduct, items: Sequence[ExportedItem]) -> None:
        """Count an answer that is not written."""
        self._left_out.add(attribute, reason, product.product_id, "; ".join(item.text for item in items))


class NewFile(NamedTuple):
    """File made only of what the run knows of the products.

    Attributes:
        id_column: column with their ids; None for the one that the user names.
        family: pattern of a category's id that goes into a column `family`; None if there is no such column.
        note: note for the user about the file.
    """

    suffix: str
    delimiter: str
    id_column: str | None
    family: str | None
    note: str


class Original(Protocol):
    """Input file of the run that is filled in."""

    @property
    def header(self) -> Sequence[str]:
        """Names of its columns."""

    @property
    def id_columns(self) -> Sequence[str]:
        """Names of the columns that the products' ids are made of."""

    def fill(
        self,
        columns: Sequence[TargetColumn],
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
        path: Path,
    ) -> None:
        """Write the file to `path` with the products' answers."""


@dataclass(frozen=True, slots=True)
class Shop:
    """Shop whose files answers are written into.

    Attributes:
        columns: function that returns the columns for attributes, given a file's header (empty for a new file).
        is_original: function that tells whether a delimited file of a format, columns and delimiter is the shop's.
        id_columns: columns that identify the product of a row.
        note: function that returns a note about new columns; "" if there is none.
        has_meanings: whether columns are the shop's own, so that several attributes ("Color", "Colour") may mean one.
        new_file: file to make if the run read none of the shop's; None if none can be made.
        feed: opens an XML file; None if the shop has none.
        max_bytes: size of the largest file that the shop imports; None without a limit.
        options: options of `hpd export` that only such shops use.
    """

    name: str
    columns: Callable[[Sequence[str], Sequence[TargetAsked], ShopWishes], list[TargetColumn]]
    is_original: Callable[[str, Sequence[str], str, ShopWishes], bool]
    id_columns: Callable[[ShopWishes], Sequence[str]]
    note: Callable[[Sequence[TargetColumn]], str] = lambda _: ""
    has_meanings: bool = False
    new_file: NewFile | None = None
    feed: Callable[[str, InputConfig], Original] | None = None
    max_bytes: int | None = None
    options: frozenset[str] = frozenset()


def all_attributes(schemas: Mapping[str, CategorySchema]) -> list[TargetAsked]:
    """Return the attributes of all categories, in order. Those of one name are separate if they differ in properties
    that a column depends on."""
    found: dict[tuple[object, ...], tuple[Attribute, set[str]]] = {}
    for category, schema in schemas.items():
        for each in schema.attributes:
            key = each.name, each.id, each.type, each.unit, each.multiple
            found.setdefault(key, (each, set()))[1].add(category)
    return [TargetAsked(attribute, frozenset(categories)) for attribute, categories in found.values()]


def check_columns(columns: Iterable[TargetColumn], target: str) -> None:
    """Raise `UsageError` if attributes that share a column would be written in different ways there."""
    firsts: dict[Hashable, TargetColumn] = {}
    for column in columns:
        first = firsts.setdefault(column.target, column)
        if _form(first) != _form(column):
            raise UsageError(
                f"{_described(first)} and {_described(column)} would both be {target}'s {column.name}, which holds "
                "one kind of values: give them ids of their own in the schemas (`hpd normalise RUN --schemas FILE`), "
                f"or leave one out with --columns '{column.attribute}='"
            )


def check_names(columns: Sequence[TargetColumn], target: Shop, wishes: ShopWishes) -> None:
    """Raise `UsageError` if two attributes would share a column that the user did not name, or one the unit of another.

    Their names only look alike in the shop's form ("Max. load", "Max load"), so a value could be of the wrong one.
    """
    firsts: dict[str, TargetColumn] = {}
    units = {folded_name(column.unit.name): column for column in columns if column.unit is not None}
    for column in columns:
        name = folded_name(column.name)
        if (measured := units.get(name)) is not None and measured.attribute != column.attribute:
            raise UsageError(
                f"the attribute {column.attribute!r} would go into the column {column.name!r}, which has the unit of "
                f"the attribute {measured.attribute!r}: {_other_column(column)}"
            )
        if target.has_meanings or column.attribute in wishes.columns:
            continue
        first = firsts.setdefault(name, column)
        if not _is_one(first.asked.attribute, column.asked.attribute):
            raise UsageError(
                f"the attributes {first.attribute!r} and {column.attribute!r} would both be {target.name}'s "
                f"{column.name}: {_other_column(column)}"
            )


def _is_one(attribute: Attribute, other: Attribute) -> bool:
    return attribute.name == other.name or (attribute.id is not None and attribute.id == other.id)


def _other_column(column: TargetColumn) -> str:
    name = column.attribute
    return f"name another with --columns '{name}=COLUMN', or leave the attribute out with --columns '{name}='"


def check_kept(columns: Iterable[TargetColumn], kept: Iterable[str]) -> None:
    """Raise `UsageError` if an attribute would go into a column that identifies the product of a row."""
    names = {folded_name(name) for name in kept}
    for column in columns:
        for name in (column.name, *([column.unit.name] if column.unit is not None else [])):
            if folded_name(name) in names:
                raise UsageError(
                    f"the attribute {column.attribute!r} would go into the column {name!r}, which says which product "
                    f"a row is: {_other_column(column)}"
                )


def _form(column: TargetColumn) -> tuple[Rule, bool]:
    return column.rule(column.asked.attribute), column.unit is not None


def _described(column: TargetColumn) -> str:
    attribute, categories = column.asked
    several = "several of " if attribute.multiple else ""
    return f"the attribute {attribute.name!r} of {min(categories)!r} ({several}{attribute.type})"


def check_mapping(columns: Mapping[str, str], asked: Iterable[TargetAsked]) -> None:
    """Raise `UsageError` if `--columns` names an attribute that the run did not ask for."""
    known = {attribute.name for attribute, _ in asked}
    if unknown := [name for name in columns if name not in known]:
        raise UsageError(
            f"--columns: the run has no attribute {unknown[0]!r}; it has {', '.join(map(repr, sorted(known)[:10]))}"
        )


def find_place(header: Sequence[str], name: str) -> int | None:
    """Return the index of the column of this name, or else of one that differs only in case or gaps; None if there is
    none."""
    if name in header:
        return header.index(name)
    folded = folded_name(name)
    return next((place for place, each in enumerate(header) if folded_name(each) == folded), None)


def folded_name(name: str) -> str:
    """Return a column's name without case, and with one kind of gap."""
    return re.sub(r"[\s_]+", " ", name).strip().casefold()
