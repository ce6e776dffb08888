"""Parser of the text that a model wrote for one value, to a `Value`.

The rule is the same for every layout and baseline. The line up to the first newline counts, or up to where decoding
stopped because the rest would not count (text/endings.py). Its first complete JSON value is read; the rest is dropped
and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpd_core.text import absence
from hpd_core.text.json_reading import Literal, raw_decode
from hpd_core.text.number_forms import BARE_NUMBER
from hpd_core.text.numbers import read_number, settle
from hpd_core.types import Attribute, Choice, Value, is_encodable

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
    """Parse one answer.

    Args:
        attribute: the attribute asked for.
        raw: the generated text, including the closing token's.
        closed: whether the line ended by itself; if not, it was cut at K_max. A value that was complete before
            the cut is whole; one that the cut may have shortened is "truncated".
        fields: the record's texts, which decide ambiguous readings; None if they are not known.
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
        answer, end = _bare_number(attribute, text) or raw_decode(
            text, fields, is_whole=closed, members=attribute.vocabulary.spellings
        )
    except (ValueError, RecursionError):
        return Value(None, (), "invalid" if closed else "truncated", **common)
    rest = text[end:]
    if not closed and isinstance(answer, Literal) and (rest[:1] not in _NUMBER_ENDS or _may_go_on(attribute, rest)):
        # Quotes and brackets end a string or a list; a number at the cut might have had more digits.
        return Value(None, (), "truncated", **common)
    common["num_dropped"] = len(rest.strip().removeprefix(",").strip())
    items = _items(attribute, answer, fields)
    if items is None:
        return Value(None, (), "invalid", **common)
    if not items:
        return Value(None, (), "absent", **common)
    return Value(join_items(items), items, "value", **common)


def words_for_nothing(attribute: Attribute, raw: str, fields: Mapping[str, str] | None = None) -> list[str]:
    """Return the texts in an answer (a `Value.raw`) that are not items because they say that there is no value."""
    try:
        answer, _ = raw_decode(raw.strip(), fields, is_whole=True, members=attribute.vocabulary.spellings)
    except (ValueError, RecursionError):
        return []
    answers = answer if isinstance(answer, list) else [answer]
    texts = [text for text in answers if isinstance(text, str) and text.strip()]
    return [text for text in texts if _item(attribute, text, fields) == ""]


def join_items(items: Iterable[str]) -> str:
    """Join the items of a value to one text."""
    return _ITEM_SEPARATOR.join(items)


def _items(attribute: Attribute, answer: Any, fields: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """Return the answer's items; empty if absent; None if it is not a valid answer for this attribute."""
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
    """Return one scalar as text; "" for absent; None if it does not fit the attribute."""
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
        # An empty string is not an answer: the model says null if there is no value.
        return None
    member = attribute.vocabulary.label(answer if isinstance(answer, str) else text)
    if member is None and not isinstance(answer, Literal):
        texts = fields if attribute.is_text else None
        if absence.read(text, attribute.name, texts) is not absence.Reading.VALUE:
            return ""
    if attribute.type == "boolean":
        return _BOOLEANS.get(text.casefold())
    if attribute.type == "number":
        return _number(text, attribute.unit.names if attribute.unit else (), fields)
    return member if attribute.type == "enum" else str(text)


def _bare_number(attribute: Attribute, text: str) -> tuple[Literal, int] | None:
    """Return an unquoted number and its end; JSON would end "20,000" at its comma and "1/2" at its slash."""
    found = BARE_NUMBER.match(text) if attribute.type == "number" else None
    return None if found is None else (Literal(found.group()), found.end())


def _may_go_on(attribute: Attribute, rest: str) -> bool:
    """Return whether the rest after a number may belong to it: a comma, which digits may follow."""
    return attribute.type == "number" and rest == ","


def _number(text: str, units: Sequence[str], fields: Mapping[str, str] | None) -> str | None:
    """Return the number without its unit; evidence in the text tells which unit it was written in."""
    folded = text.casefold()
    endings = [unit for unit in units if unit and folded.endswith(unit.casefold())]
    beginnings = [unit for unit in units if unit and folded.startswith(unit.casefold())]
    if endings:
        text = text[: -max(map(len, endings))].rstrip()
    elif beginnings:  # "$12.99"
        text = text[max(map(len, beginnings)) :].lstrip()
    item = read_number(text)
    if item is None or fields is None:
        return item
    # A number that the texts do not decide, either, stays as the model wrote it.
    return settle(item, tuple(fields.values())) or item


def decoded_choice(attribute: Attribute) -> Choice | None:
    """Return `Value.choice` of an answer that was decoded token by token."""
    return "greedy" if attribute.type in ("enum", "boolean") else None


def error_value() -> Value:
    """Return the value of every attribute of a record that was not decoded."""
    return Value(None, (), "error")
