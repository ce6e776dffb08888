"""From the text a model wrote for one value to a `Value`.

One rule for every layout and baseline: what counts is the line up to the first newline, or to where decoding stopped
since nothing behind would count (text/endings.py); the first complete JSON value of it is read, the rest is dropped and
counted.
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
    """The texts in an answer, as `Value.raw` has it, that are no items since they say that there is no value."""
    try:
        answer, _ = raw_decode(raw.strip(), fields, is_whole=True, members=attribute.vocabulary.spellings)
    except (ValueError, RecursionError):
        return []
    answers = answer if isinstance(answer, list) else [answer]
    texts = [text for text in answers if isinstance(text, str) and text.strip()]
    return [text for text in texts if _item(attribute, text, fields) == ""]


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
    """A number without quotes and where it ends: JSON would end "20,000" at its comma and "1/2" at its slash."""
    found = BARE_NUMBER.match(text) if attribute.type == "number" else None
    return None if found is None else (Literal(found.group()), found.end())


def _may_go_on(attribute: Attribute, rest: str) -> bool:
    """Whether what stands behind a number may be its own: a comma, which digits may follow."""
    return attribute.type == "number" and rest == ","


def _number(text: str, units: Sequence[str], fields: Mapping[str, str] | None) -> str | None:
    """The number without its unit, in which it was written: what stands in the text says which one that is."""
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
    # What the texts do not decide, either, stays as the model wrote it.
    return settle(item, tuple(fields.values())) or item


def decoded_choice(attribute: Attribute) -> Choice | None:
    """`Value.choice` of an answer that was decoded token by token."""
    return "greedy" if attribute.type in ("enum", "boolean") else None


def error_value() -> Value:
    """The value of every attribute of a record that was not decoded."""
    return Value(None, (), "error")
