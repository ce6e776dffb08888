"""Rows of a wide table: a product with its accepted answers, one cell an attribute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pipelines.exporting.answers import ExportedItem, ExportedProduct, LeftOutAnswers
from pipelines.exporting.wide_columns import FOR_READERS, PLACE, WideColumn, WideColumns

Titles = Callable[[Sequence[ExportedProduct]], Sequence[str | None]]
"""Function that returns the first text of each product."""

MORE_DIGITS = "more digits than a number of the file holds: export csv"
_NO_VALUE = "neither a number nor a range"
_TRUTHS = {"true": True, "false": False}
_SURELY_HELD = 15  # digits, by any double
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+")
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")


def wide_rows(
    products: Sequence[ExportedProduct],
    columns: WideColumns,
    left_out: LeftOutAnswers,
    titles: Titles,
    *,
    takes_ids: bool = False,
    max_digits: int | None = None,
) -> pa.Table:
    """Return the products' rows; answers that no column can hold are counted in `left_out`.

    Args:
        titles: called only if the columns are for readers.
        takes_ids: whether ids of the vocabulary, if it has any, stand instead of labels.
        max_digits: most digits of a number outside a list in the file; None for as many as a double holds.
    """
    by_attribute = {column.attribute: column for column in columns.columns}
    rows = []
    for product in products:
        row: dict[str, Any] = {name: getattr(product, name) for name in PLACE}
        for attribute, items in product.values.items():
            row.update(_cells(by_attribute[attribute], product, items, left_out, takes_ids, max_digits))
        rows.append(row)
    if columns.for_readers:
        for row, product, title in zip(rows, products, titles(products), strict=True):
            worths = [item.worth for items in product.values.values() for item in items if item.worth is not None]
            row.update(zip(FOR_READERS, (title, min(worths, default=None)), strict=True))
    return pa.Table.from_pylist(rows, schema=columns.schema)


def _cells(
    column: WideColumn,
    product: ExportedProduct,
    items: Sequence[ExportedItem],
    left_out: LeftOutAnswers,
    takes_ids: bool,
    max_digits: int | None,
) -> Iterator[tuple[str, Any]]:
    """Yield the attribute's cell, and those of the ends and the unit of numbers."""
    is_number, kept = column.kind == "number", dict[tuple[Any, ...], None]()
    for number, item in enumerate(items):
        text = item.id or item.text if takes_ids else item.text
        cell = (_value(column, item, text), *((item.min, item.max) if is_number else (None, None)), item.unit)
        if cell[:3] == (None, None, None):
            left_out.add(column.attribute, _NO_VALUE, product.product_id, item.text)
        elif is_number and is_changed(text, None if column.is_list else max_digits):
            # Lists may be texts in the file, which keep every digit.
            left_out.add(column.attribute, MORE_DIGITS, product.product_id, item.text)
        else:
            # Items may have one normalised form. Numbers that are the same may still have units of their own.
            is_one = column.is_list and (not is_number or column.has_one_unit)
            kept[(*cell, 0 if is_one else number)] = None
    if not kept:
        return
    values, low, high, units, _ = map(list, zip(*kept, strict=True))
    for name, cells in zip((column.name, *column.end_names), (values, low, high), strict=False):
        has_any = name == column.name or any(cell is not None for cell in cells)
        yield name, (cells if has_any else None) if column.is_list else cells[0]
    if column.unit_name is not None:
        units = units if product.category in column.measured else [None] * len(units)
        if pa.types.is_list(column.unit_type):
            yield column.unit_name, units
        else:
            # One unit stands for the whole list, but not if a value has none.
            yield column.unit_name, None if column.is_list and None in units else units[0]


def _value(column: WideColumn, item: ExportedItem, text: str) -> str | float | bool | None:
    """Return the value; None for a text that is not of the column's kind."""
    if column.kind == "text":
        return text
    if column.kind == "boolean":
        return _TRUTHS.get(text)
    return float(text) if item.num is None and _PLAIN.fullmatch(text) else item.num


def is_changed(text: str, max_digits: int | None) -> bool:
    """Return whether a number in a text, alone or the end of a range, would change in the file.

    Args:
        max_digits: most digits of a number there; None for a double.
    """
    return len(text) > _SURELY_HELD and not all(_is_held(each, max_digits) for each in _NUMBER.findall(text))


def _is_held(number: str, max_digits: int | None) -> bool:
    if max_digits is not None:
        return len(number.replace(".", "").strip("0")) <= max_digits
    return Decimal(repr(float(number))) == Decimal(number)
