"""Keys and values in two-column tables: HTML, Markdown, definition lists, and tab-separated lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipelines.catalog.shown_text import shown_text

# A tag ends before the next one begins, so that unclosed tags are still scanned only once.
_ROW = re.compile(r"<tr\b[^<>]*>(.*?)(?=<tr\b|</tr\b|</table\b|\Z)", re.DOTALL | re.IGNORECASE)
_CELL = re.compile(r"<(t[dh])\b[^<>]*>(.*?)(?=<t[dh]\b|</t[dh]\b|\Z)", re.DOTALL | re.IGNORECASE)
_LIST_TAG = re.compile(r"<(d[td]|/d[dl])\b[^<>]*>|\Z", re.IGNORECASE)
_LINE = re.compile(r"^[ \t]*+\|([^|\n]++)\|([^|\n]++)(?:\|[ \t]*+)?$|^([^\t\n]++)\t([^\t\n]++)$", re.MULTILINE)
_RULE = re.compile(r"\s*:?-+:?\s*")
_UNDER_HEADER = re.compile(r"\n[ \t]*\|(?:[^\S\n]|[:|-])++(?:\n|\Z)")


def table_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the two cells, as displayed, of each two-cell row except headers. `text`: text with its markup."""
    if "<" in text:
        for row in _ROW.finditer(text):
            cells = _CELL.findall(row[1])
            if len(cells) == 2 and cells[1][0].lower() == "td":
                yield _shown(cells[0][1]), _shown(cells[1][1])
        yield from _defined_terms(text)
    for line in _LINE.finditer(text) if "|" in text or "\t" in text else ():
        key, value = (line[1], line[2]) if line[1] else (line[3], line[4])
        if not _RULE.fullmatch(key) and not (line[1] and _UNDER_HEADER.match(text, line.end())):
            yield " ".join(key.split()), " ".join(value.split())


def _defined_terms(text: str) -> Iterator[tuple[str, str]]:
    """Yield the terms of definition lists, with the first definition of each."""
    term, is_meaning = "", False
    begin: int | None = None
    for tag in _LIST_TAG.finditer(text):
        kind = (tag[1] or "").lower()
        if begin is not None and is_meaning:
            yield term, _shown(text[begin : tag.start()])
            begin = None
        if begin is None:
            begin, is_meaning = (tag.end() if kind == "dt" else None), False
        elif kind == "dd":
            term, begin, is_meaning = _shown(text[begin : tag.start()]), tag.end(), True


def _shown(cell: str) -> str:
    """Return the displayed text of a cell, on one line."""
    return " ".join(shown_text(cell, "always").split())
