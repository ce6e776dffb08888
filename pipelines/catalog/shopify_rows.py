"""Shopify's product CSV: a product spans several rows (variants, images) with one handle, and becomes one row.

Most columns keep their first cell that is not empty. Columns with several values per product (variants, options,
images) become a list of the distinct values in all its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pipelines.catalog.cells import shortened
from pipelines.catalog.delimited import DelimitedRecord
from pipelines.catalog.staged_rows import RowWriter
from pipelines.catalog.text_files import is_marked

_HANDLES = ("handle", "url handle")
_OF_SEVERAL = re.compile(
    r"(option\d+ (value|linked to)|variant .*|image .*|sku|barcode|price|compare-at price|cost per item|price / .*"
    r"|product image url|weight .*|inventory .*|requires shipping|fulfillment service|charge tax|tax code"
    r"|continue selling when out of stock)",
    re.IGNORECASE,
)


_DEFAULT_NAME, _DEFAULT_VALUE = "Title", "Default Title"


class _Row(NamedTuple):
    number: int
    cells: Sequence[str]
    text: str


def is_shopify(names: Sequence[str]) -> bool:
    """Return whether a file with these columns is a Shopify export, in its old or new form."""
    folded = {name.casefold() for name in names}
    return not folded.isdisjoint(_HANDLES) and {"title", "option1 name"} <= folded


def write_products(records: Iterable[DelimitedRecord], names: Sequence[str], writer: RowWriter) -> None:
    """Write one row per product, with its first row's number. Refuse rows that belong to no product, and products
    without a title: their first row, which has it, is broken or has another handle."""
    title = next(index for index, name in enumerate(names) if name.casefold() == "title")
    handle = next(index for index, name in enumerate(names) if name.casefold() in _HANDLES)
    is_list = [_OF_SEVERAL.fullmatch(name) is not None for name in names]
    seen: dict[str, int] = {}
    product: list[_Row] = []
    refused: list[tuple[int, str, str]] = []

    def end_product() -> None:
        if product:
            cells, more = _merged(product, names, is_list)
            text = "".join(row.text for row in product)
            if cells[title].strip() or is_marked(text):
                writer.add(product[0].number, cells, text, more)
            else:
                shown = shortened(cells[handle])
                message = (
                    f"{names[title]} is empty in all rows of {names[handle]} {shown!r}: the first one is broken, or is "
                    "written otherwise"
                )
                writer.refuse(product[0].number, "broken_line", message, text)
        for number, message, text in refused:
            writer.refuse(number, "broken_line", message, text)
        product.clear()
        refused.clear()

    for number, record in enumerate(records):
        place = f"line {record.line}: "
        if record.cells is None:
            refused.append((number, place + record.problem, record.text))
            continue
        row = _Row(number, record.cells, record.text)
        name = row.cells[handle]
        if product and name == product[0].cells[handle]:
            product.append(row)
            continue
        end_product()
        if not name.strip():
            refused.append((number, place + f"{names[handle]} is empty, so it belongs to no product", record.text))
        elif (first := seen.setdefault(name, number)) != number:
            message = (
                f"{names[handle]} {shortened(name)!r} is that of row {first}, and others stand between; sort by it"
            )
            refused.append((number, place + message, record.text))
        else:
            product.append(row)
    end_product()


def _without_default(row: _Row, names: Sequence[str]) -> _Row:
    """Return the row without the default option that Shopify writes if a product has none."""
    option = {name.casefold(): index for index, name in enumerate(names)}
    place, value = option["option1 name"], option.get("option1 value")
    if value is None or row.cells[value] != _DEFAULT_VALUE or row.cells[place] not in ("", _DEFAULT_NAME):
        return row
    return row._replace(cells=[("" if index in (place, value) else cell) for index, cell in enumerate(row.cells)])


def _merged(
    product: Sequence[_Row], names: Sequence[str], is_list: Sequence[bool]
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the product's cells, and lists for the columns with several values."""
    cells, more = [], {}
    product = [_without_default(row, names) for row in product]
    for name, has_several, column in zip(
        names, is_list, zip(*(row.cells for row in product), strict=True), strict=True
    ):
        different = list(dict.fromkeys(cell for cell in column if cell))
        cells.append(different[0] if different else "")
        if has_several and len(different) > 1:
            more[name] = different
    return cells, more
