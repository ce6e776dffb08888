"""Attributes that texts name themselves: lines such as "Colour: red", counted by category."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_SEPARATOR = re.compile(r"[\n\r;|•]|<[^>]{1,40}>")
_PAIR = re.compile(r"^[\s*–-]*([^\W\d_][^:：=<>{}\"]{0,30}?)\s*[:：=]\s*(\S.{0,80})$")
_NUMBER = re.compile(r"^\d[\d.,]*\s*([^\s\d.,]{0,12})$")
_TRUTHS = frozenset(("yes", "no", "true", "false", "ja", "nein", "sí", "si", "oui", "non"))
_MIN_SHARE = 0.2  # of a category's rows that name a key
_MIN_ROWS = 2  # that name it; where a category has one row, that one
_MAX_ATTRIBUTES = 20
_MAX_KEY_WORDS = 4
_MAX_EXAMPLES = 3
_TYPED_SHARE = 0.9  # of its values that are numbers, or yes and no
_TYPED_ROWS = 3


@dataclass(slots=True)
class FoundAttribute:
    """A key that texts of a category name, in how many rows, and with which values.

    Attributes:
        type, unit: of its values in all categories together: an attribute is of one type.
    """

    name: str
    num_rows: int = 0
    values: Counter[str] = field(default_factory=Counter)
    type: str = "string"
    unit: str | None = None

    @property
    def examples(self) -> list[str]:
        """A few of its values, the most frequent first."""
        return [value for value, _ in self.values.most_common(_MAX_EXAMPLES)]


def pairs(text: str) -> Iterable[tuple[str, str]]:
    """The keys and values that stand in a text as "key: value", each in a line or item of its own."""
    for part in _SEPARATOR.split(text):
        if (match := _PAIR.match(part.strip())) and not match[2].startswith("//"):
            key = " ".join(match[1].split())
            if len(key.split()) <= _MAX_KEY_WORDS and key.isprintable():
                yield key, match[2].strip()


def find_attributes(texts: Iterable[tuple[str, str]]) -> Mapping[str, Sequence[FoundAttribute]]:
    """The attributes of each category, the most frequent first. `texts`: category and all the text of a row."""
    num_rows: Counter[str] = Counter()
    found: dict[str, dict[str, FoundAttribute]] = defaultdict(dict)
    for category, text in texts:
        num_rows[category] += 1
        first: dict[str, tuple[str, str]] = {}
        for key, value in pairs(text):
            first.setdefault(key.casefold(), (key, value))
        for folded, (key, value) in first.items():
            attribute = found[category].setdefault(folded, FoundAttribute(key))
            attribute.num_rows += 1
            attribute.values[value] += 1
    _set_types(list(found.values()))
    return {
        category: _frequent(list(attributes.values()), num_rows[category]) for category, attributes in found.items()
    }


def _set_types(categories: Sequence[Mapping[str, FoundAttribute]]) -> None:
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for attributes in categories:
        for folded, attribute in attributes.items():
            values[folded].update(attribute.values)
    types = {folded: _type_and_unit(each) for folded, each in values.items()}
    for attributes in categories:
        for folded, attribute in attributes.items():
            attribute.type, attribute.unit = types[folded]


def _type_and_unit(values: Counter[str]) -> tuple[str, str | None]:
    """What nearly all values are: number, boolean or string; and the unit of numbers that have one."""
    needed = max(_TYPED_ROWS, _TYPED_SHARE * values.total())
    if sum(count for value, count in values.items() if value.casefold() in _TRUTHS) >= needed:
        return "boolean", None
    units: Counter[str] = Counter()
    for value, count in values.items():
        if match := _NUMBER.match(value):
            units[match[1]] += count
    # Numbers in several units are no one number.
    if units.total() >= needed and len({unit.casefold() for unit in units}) == 1:
        return "number", units.most_common(1)[0][0] or None
    return "string", None


def _frequent(attributes: list[FoundAttribute], num_rows: int) -> list[FoundAttribute]:
    needed = max(min(_MIN_ROWS, num_rows), _MIN_SHARE * num_rows)
    attributes.sort(key=lambda attribute: -attribute.num_rows)
    return [attribute for attribute in attributes if attribute.num_rows >= needed][:_MAX_ATTRIBUTES]
