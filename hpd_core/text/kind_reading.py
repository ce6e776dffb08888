"""Parser of the text that a model wrote for one value: JSON of the kind that was asked for.

As in text/values.py, the first JSON value of the line counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hpd_core.text import absence
from hpd_core.text.json_reading import Literal, raw_decode
from hpd_core.text.value_kinds import Boolean, FreeText, Integer, ListOf, Number, OneOf, ValueKind, Verbatim, spelled
from hpd_core.text.values import parse_value
from hpd_core.types import Attribute, ValueStatus, is_encodable

_NUMBER, _NUMBERS = Attribute(name="value", type="number"), Attribute(name="value", type="number", multiple=True)
_BOOLEAN, _BOOLEANS = Attribute(name="value", type="boolean"), Attribute(name="value", type="boolean", multiple=True)
_EMPTY_LIST = re.compile(r"\[\s*\]")
_ITEM = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s",\[\]{}]+)\s*,')
"""Item of a list that another one follows."""


def read_value(kind: ValueKind, raw: str, *, closed: bool, fields: Mapping[str, str]) -> tuple[Any, ValueStatus]:
    """Return the value, None unless the status is "value", and the status.

    Args:
        raw: the generated text, including the closing token's.
        closed: whether the line ended by itself; if not, it was cut.
        fields: the texts before it, which decide ambiguous readings.
    """
    line = raw.split("\n", 1)[0].strip()
    if isinstance(kind, FreeText):
        return (None, "absent") if kind.nullable and line == "null" else (line, "value" if closed else "truncated")
    item = kind.item if isinstance(kind, ListOf) else kind
    is_list = isinstance(kind, ListOf)
    if isinstance(kind, ListOf) and kind.most is not None and (first := _first_items(line, kind.most)) is not None:
        line, closed = first, True
    if isinstance(item, Number | Integer | Boolean) and not _EMPTY_LIST.match(line):
        single, several = (_BOOLEAN, _BOOLEANS) if isinstance(item, Boolean) else (_NUMBER, _NUMBERS)
        return _typed(several if is_list else single, kind, line, closed, fields)
    return _scalars(kind, line, closed, fields)


def _first_items(line: str, most: int) -> str | None:
    """Return the list cut after its first `most` items; None if the line is not a list, or has no more items."""
    if not line.startswith("["):
        return None
    end = place = 1
    for _ in range(most):
        found = _ITEM.match(line, place)
        if found is None:
            return None
        end, place = found.end(1), found.end()
    return f"{line[:end]}]"


def _typed(
    attribute: Attribute, kind: ValueKind, line: str, closed: bool, fields: Mapping[str, str]
) -> tuple[Any, ValueStatus]:
    """Read numbers and booleans, in the forms that texts have. Return value and status."""
    value = parse_value(attribute, line, closed=closed, fields=fields)
    if value.status == "absent":
        return None, "absent" if kind.nullable else "invalid"
    if value.status != "value":
        return None, value.status
    item = kind.item if isinstance(kind, ListOf) else kind
    if isinstance(kind, ListOf):
        # A list may hold a number twice; `items` hold each once.
        try:
            members, _ = raw_decode(line, fields, is_whole=closed)
        except (ValueError, RecursionError):
            return None, "invalid"
        if not isinstance(members, list):
            return None, "invalid"
        single = _BOOLEAN if isinstance(item, Boolean) else _NUMBER
        texts = [parse_value(single, _written(member), closed=True, fields=fields).text for member in members]
        found = [_plain(item, text) for text in texts]
        return (None, "invalid") if None in found else (found, "value")
    found_one = _plain(item, value.text)
    return (None, "invalid") if found_one is None else (found_one, "value")


def _written(member: Any) -> str:
    return str(member) if isinstance(member, Literal) else spelled(member)


def _plain(kind: ValueKind, text: str | None) -> Any:
    """Return a number or boolean from its text; None if it is not of this kind."""
    if text is None:
        return None
    if isinstance(kind, Boolean):
        return text == "true"
    # A comma is left if the texts do not settle its meaning: it is read as in English.
    number = Decimal(text.replace(",", ""))
    if number == number.to_integral_value():
        return int(number)
    return None if isinstance(kind, Integer) else float(number)


def _scalars(kind: ValueKind, line: str, closed: bool, fields: Mapping[str, str]) -> tuple[Any, ValueStatus]:
    """Read strings and members of enums. Return value and status."""
    item = kind.item if isinstance(kind, ListOf) else kind
    members = [value for value in item.values if isinstance(value, str)] if isinstance(item, OneOf) else ()
    try:
        answer, end = raw_decode(line, fields, is_whole=closed, members=members)
    except (ValueError, RecursionError):
        return None, "invalid" if closed else "truncated"
    if not closed and end == len(line) and not isinstance(answer, str | list):
        return None, "truncated"
    if answer is None:
        return None, "absent" if kind.nullable else "invalid"
    if isinstance(kind, Verbatim) and kind.nullable and _says_nothing(answer, fields):
        return None, "absent"
    if isinstance(kind, ListOf) != isinstance(answer, list):
        return None, "invalid"
    found = [_scalar(item, each) for each in (answer if isinstance(answer, list) else [answer])]
    if None in found:
        return None, "invalid"
    return (found if isinstance(kind, ListOf) else found[0]), "value"


def _says_nothing(answer: Any, fields: Mapping[str, str]) -> bool:
    """Return whether a run of the text is a word for nothing: "N/A" may be copied as any other run."""
    return isinstance(answer, str) and absence.read(answer, "", fields) is not absence.Reading.VALUE


def _scalar(kind: ValueKind, answer: Any) -> Any:
    """Return the answer as plain JSON; None if it is not of this kind."""
    if isinstance(answer, Literal):
        try:
            answer = float(answer) if set(answer) & set(".eE") else int(answer)
        except ValueError:  # more digits than Python reads
            return None
    elif isinstance(answer, str):
        answer = str(answer)
        if not is_encodable(answer):
            return None
    elif not isinstance(answer, bool):
        return None
    if isinstance(kind, OneOf):
        return answer if answer in kind else None
    return answer if isinstance(answer, str) else None
