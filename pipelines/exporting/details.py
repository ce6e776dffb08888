"""Cells that hold many values by their names, as Google's `product_detail` in a text feed.

    Display:Resolution:432 x 240,:Lining:"cotton, linen"     section (may be empty), name, value

Published for text data sources: support.google.com/merchants/answer/9218260.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from pipelines.exporting.targets import folded_name

_PART = r'\s*(?:"((?:[^"]|"")*)"|([^:,"]*))\s*'
_DETAIL = re.compile(rf"{_PART}:{_PART}:{_PART}(?:,|\Z)")
_SPECIAL = re.compile(r'[:,"]|\A\s|\s\Z')


class Detail(NamedTuple):
    """Detail of a product. `section` may be empty."""

    section: str
    name: str
    value: str


def read_details(cell: str) -> list[Detail] | None:
    """Return the details of a cell; None if it does not have their form."""
    details, position = [], 0
    while position < len(cell):
        found = _DETAIL.match(cell, position)
        if found is None:
            return None
        parts = (found[2 * n + 1] or found[2 * n + 2] or "" for n in range(3))
        details.append(Detail(*(part.replace('""', '"').strip() for part in parts)))
        position = found.end()
    return details


def write_details(details: Iterable[Detail]) -> str:
    """Return the cell with these details."""
    return ",".join(":".join(map(_quoted, detail)) for detail in details)


def with_detail(cell: str, name: str, value: str, *, overwrites: bool) -> str | None:
    """Return the cell with a value under this name; unchanged if the name has a value, unless `overwrites`.

    Returns None if the cell does not have the form of details.
    """
    details = read_details(cell)
    if details is None:
        return None
    taken = [index for index, each in enumerate(details) if is_called(each.name, name)]
    if not taken:
        separator = "," if details and not cell.rstrip().endswith(",") else ""
        return cell + separator + write_details([Detail("", name, value)])
    if not overwrites and any(details[index].value for index in taken):
        return cell
    details[taken[0]] = details[taken[0]]._replace(value=value)
    return write_details(each for index, each in enumerate(details) if index not in taken[1:])


def is_called(name: str, other: str) -> bool:
    """Return whether two names are of the same detail."""
    return folded_name(name) == folded_name(other)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if _SPECIAL.search(part) else part
