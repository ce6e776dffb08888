"""From the text a model wrote for one value to a `Value`.

One rule for every layout and baseline: what counts is the line up to the first newline, or to where decoding stopped
since nothing behind would count (text/endings.py); the first complete JSON value of it is read, the rest is dropped and
counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hpd_core.text import absence
from hpd_core.text.json_reading import Literal, raw_decode
from hpd_core.types import Attribute, Value, is_encodable

_BOOLEANS = {"true": "true", "yes": "true", "false": "false", "no": "false"}
_ITEM_SEPARATOR = "; "
_NUMBER_ENDS = frozenset(" \t,]}")


def parse_value(
    attribute: Attribute,
    raw: str,
    *,
    closed: bool,
    fields: Mapping[str, str] | None = None,
    num_tokens: int = 0,
    logprob_mean: float | None = None,
    logprob_min: float | None = None,
) -> Value:
    """Reads one answer.

    Args:
        attribute: what was asked.
        raw: the generated text, the closing token's text included.
        closed: whether the line ended by itself; if not, it was cut at K_max. A value that was complete before
            the cut is whole; one that the cut may have shortened is "truncated".
        fields: the record's texts, by which is decided what can be read in two ways; None where they are not known.
    """
    line = raw.split("\n", 1)[0]
    common: dict[str, Any] = {
        "raw": line,
        "num_tokens": num_tokens,
        "logprob_mean": logprob_mean,
        "logprob_min": logprob_min,
    }
    text = line.strip()
    try:
        answer, end = raw_decode(text, fields, is_whole=closed)
    except (ValueError, RecursionError):
        return Value(None, (), "invalid" if closed else "truncated", **common)
    if not closed and isinstance(answer, Literal) and text[end : end + 1] not in _NUMBER_ENDS:
        # Quotes and brackets end a string or a list; a number at the cut might have had more digits.
        return Value(None, (), "truncated", **common)
    common["num_dropped"] = len(text[end:].strip().removeprefix(",").strip())
    items = _items(attribute, answer, fields)
    if items is None:
        return Value(None, (), "invalid", **common)
    if not items:
        return Value(None, (), "absent", **common)
    return Value(join_items(items), items, "value", **common)


def join_items(items: Iterable[str]) -> str:
    """The items of a value as one text."""
    return _ITEM_SEPARATOR.join(items)


def _items(attribute: Attribute, answer: Any, fields: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """The answer's items; empty: absent; None: not a valid answer for this attribute."""
    if isinstance(answer, list):
        if not attribute.multiple:
            return None
        items = [_item(attribute, member, fields) for member in answer]
        if any(item is None for item in items):
            return None
        return tuple(dict.fromkeys(item for item in items if item))
    item = _item(attribute, answer, fields)
    if item is None:
        return None
    return (item,) if item else ()


def _item(attribute: Attribute, answer: Any, fields: Mapping[str, str] | None) -> str | None:
    """One scalar as text; "" for absent; None if it does not fit the attribute."""
    if answer is None:
        return ""
    if isinstance(answer, bool):
        text = "true" if answer else "false"
    elif isinstance(answer, str):
        text = answer.strip()
        if not is_encodable(text):
            return None
    else:
        return None
    if not text:
        # An empty string is no answer: null is how the model says that there is none.
        return None
    member = _member(text, attribute.values or ())
    is_text = member is None and not isinstance(answer, Literal)
    if is_text and absence.read(attribute, text, fields) is not absence.Reading.VALUE:
        return ""
    if attribute.type == "boolean":
        return _BOOLEANS.get(text.casefold())
    if attribute.type == "number":
        return _number(text, attribute.unit)
    return member if attribute.type == "enum" else str(text)


def _number(text: str, unit: str | None) -> str | None:
    if unit and text.casefold().endswith(unit.casefold()):
        text = text[: -len(unit)].rstrip()
    try:
        return str(text) if math.isfinite(float(text)) and text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _member(text: str, members: tuple[str, ...]) -> str | None:
    if text in members:
        return str(text)
    folded = [member for member in members if member.strip().casefold() == text.casefold()]
    return folded[0] if len(folded) == 1 else None


def error_value() -> Value:
    """The value of every attribute of a record that was not decoded."""
    return Value(None, (), "error")
