"""Attributes named in texts: lines such as "Colour: red", and cells that are maps, counted by category."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hpd_core.text.near_names import fold_name
from pipelines.catalog.cells import field_text
from pipelines.catalog.html_text import shown_text
from pipelines.config.catalog_input import HtmlMode
from pipelines.profiling.from_gold import GuessedType, guessed_type

_SEPARATOR = re.compile(r"[\n\r;|•]|<[^>]{1,40}>")
_ASSIGNED, _ASSIGNMENTS = re.compile(r"\w+=[^=]*,\w+="), re.compile(r",(?=\w+=)")
_PAIR = re.compile(r"^[\s*–-]*([^\W\d_][^:：=<>{}\"]{0,30}?)\s*[:：=]\s*(\S.{0,80})$")
_MIN_SHARE = 0.2  # of a category's rows that name a key
_MIN_ROWS = 2  # that name it; where a category has one row, that one
_MAX_ATTRIBUTES = 20
_MAX_KEY_WORDS = 4
_MAX_VALUE = 81  # characters, as in a text
_MAX_NESTED = 4
# A list of mappings, one a key and its value: [{"name": "Colour", "value": "red"}].
KEY_NAMES = ("name", "key", "label", "attribute", "attribute_name", "title")
VALUE_NAMES = ("value", "values", "attribute_value", "text", "content")


# A catalog has the same keys in every row.
_folded = lru_cache(maxsize=10_000)(fold_name)


@dataclass(slots=True)
class FoundAttribute:
    """Key that texts of a category name, with its number of rows and its values.

    Attributes:
        kind: type guessed from its values in all categories, so that an attribute has one type.
    """

    name: str
    num_rows: int = 0
    values: Counter[str] = field(default_factory=Counter)
    kind: GuessedType = field(default_factory=GuessedType)


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield keys and values written as "key: value", each in a separate line or item of the text; a line as Magento's
    `color=Black|Red,material=Nylon` is parted before each key.
    """
    lines = ((_ASSIGNMENTS if _ASSIGNED.match(line) else _SEPARATOR).split(line) for line in text.split("\n"))
    for part in itertools.chain.from_iterable(lines):
        if (match := _PAIR.match(part.strip())) and not match[2].startswith("//"):
            key = " ".join(match[1].split())
            if _is_key(key):
                yield key, match[2].strip()


def text_pairs(text: str, html: HtmlMode) -> Iterator[tuple[str, str]]:
    """Yield keys and values in a text of the catalog: from its displayed lines, and from two-column tables."""
    yield from pairs(shown_text(text, html))
    for key, value in table_pairs(text):
        if pair := _pair(key.rstrip(" :："), value):
            yield pair


def cell_pairs(cell: Any, nested: int = 0) -> Iterator[tuple[str, str]]:
    """Yield keys and values of a cell that is a map, a list of maps, or JSON text of one; nothing for other cells."""
    if isinstance(cell, str) and cell.lstrip()[:1] in ("{", "["):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return
    if nested > _MAX_NESTED:
        return
    if isinstance(cell, list):
        for item in cell:
            if isinstance(item, Mapping):
                yield from cell_pairs(item, nested + 1)
        return
    if not isinstance(cell, Mapping):
        return
    if named := _named_pair(cell):
        yield named
        return
    for key, value in cell.items():
        if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(each, Mapping) for each in value)):
            yield from cell_pairs(value, nested + 1)
        elif pair := _pair(key, value):
            yield pair


def count_pairs(
    rows: Iterable[tuple[str, Iterable[tuple[str, str]]]],
) -> Mapping[str, Sequence[FoundAttribute]]:
    """Count the attributes of each category, most frequent first. `rows`: category and pairs of each row."""
    num_rows: Counter[str] = Counter()
    found: dict[str, dict[str, FoundAttribute]] = defaultdict(dict)
    for category, row_pairs in rows:
        num_rows[category] += 1
        first: dict[str, tuple[str, str]] = {}
        for key, value in row_pairs:
            first.setdefault(_folded(key), (key, value))
        for folded, (key, value) in first.items():
            attribute = found[category].setdefault(folded, FoundAttribute(key))
            attribute.num_rows += 1
            attribute.values[value] += 1
    _set_kinds(list(found.values()))
    return {
        category: _frequent(list(attributes.values()), num_rows[category]) for category, attributes in found.items()
    }


def _is_key(key: str) -> bool:
    return bool(key) and len(key.split()) <= _MAX_KEY_WORDS and key.isprintable()


def _pair(key: Any, value: Any) -> tuple[str, str] | None:
    name, text = " ".join(str(key).split()), field_text(value, ", ")
    if text is None or not text.strip() or len(text) > _MAX_VALUE or not _is_key(name):
        return None
    return name, " ".join(text.split())


def _named_pair(cell: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return key and value of a mapping that is one pair, such as {"name": ..., "value": ...}, else None."""
    key = next((cell[name] for name in KEY_NAMES if isinstance(cell.get(name), str)), None)
    value = next((cell[name] for name in VALUE_NAMES if cell.get(name) is not None), None)
    return _pair(key, value) if key is not None and value is not None else None


def _set_kinds(categories: Sequence[Mapping[str, FoundAttribute]]) -> None:
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for attributes in categories:
        for folded, attribute in attributes.items():
            values[folded].update(attribute.values)
    kinds = {folded: guessed_type(each) for folded, each in values.items()}
    for attributes in categories:
        for folded, attribute in attributes.items():
            attribute.kind = kinds[folded]


def _frequent(attributes: list[FoundAttribute], num_rows: int) -> list[FoundAttribute]:
    needed = max(min(_MIN_ROWS, num_rows), _MIN_SHARE * num_rows)
    attributes.sort(key=lambda attribute: -attribute.num_rows)
    return [attribute for attribute in attributes if attribute.num_rows >= needed][:_MAX_ATTRIBUTES]


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
