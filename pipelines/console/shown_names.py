"""Catalog names in terminal tables: short enough for a line or two, and all distinct."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len, set_cell_size

MAX_CELLS = 60
_MARK = "…"
# What joins emoji, and letters of some scripts, is seen by what it does.
_JOINED = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")


def shown_names(names: Iterable[str], most: int = MAX_CELLS) -> dict[str, str]:
    """Return each name as it is shown beside the others.

    A name that is fully visible is unchanged; others are quoted and escaped. In a name wider than `most` cells, a mark
    replaces the middle. Where two would then look alike, their marks differ.
    """
    written = {name: _written(name) for name in names}
    shown = {name: _shortened(text, most, _MARK) for name, text in written.items()}
    counts = Counter(shown.values())
    return {name: text if counts[text] == 1 else _told_apart(name, written[name], most) for name, text in shown.items()}


def with_shown_names(
    columns: Sequence[str], rows: Iterable[Sequence[str]], of: Collection[str] = ("category", "attribute", "product")
) -> list[list[str]]:
    """Return the rows of a table, with the names in the columns called `of` replaced by their shown form."""
    by_column = [list(cells) for cells in zip(*rows, strict=True)]
    for place, cells in enumerate(by_column):
        if columns[place] in of:
            shown = shown_names(cells)
            by_column[place] = [shown[cell] for cell in cells]
    return [list(cells) for cells in zip(*by_column, strict=True)]


def _written(name: str) -> str:
    if not name:
        return ""
    plain = _JOINED.sub("", name)
    return name if plain.isprintable() and plain == plain.strip() else repr(name)


def _shortened(text: str, most: int, mark: str) -> str:
    if cell_len(text) <= most:
        return text
    room = most - cell_len(mark)
    head = set_cell_size(text, room - room // 3).rstrip()
    return f"{head}{mark}{_end(text, room // 3)}"


def _told_apart(name: str, text: str, most: int) -> str:
    mark = _mark_of(name)
    # One that fits is alike to what another is written out as.
    return _shortened(text if cell_len(text) > most else text + " " * most, most, mark).rstrip()


def _end(text: str, cells: int) -> str:
    """Return as much of the text's end as fits into `cells`."""
    start, room = len(text), cells
    while start > 0 and (room := room - cell_len(text[start - 1])) >= 0:
        start -= 1
    return text[start:].lstrip()


def _mark_of(name: str) -> str:
    return f"{_MARK}{hashlib.md5(name.encode(errors='surrogatepass')).hexdigest()[:6]}{_MARK}"
