"""Parser of the text that a model wrote for one value, to a `Value`.

The rule is the same for every layout and baseline. The line up to the first newline counts, or up to where decoding
stopped because the rest would not count (text/endings.py). Its first complete JSON value is read; the rest is dropped
and counted.

Reader of a model's JSON that repairs backslashes.

A model copies `cotton\\nylon` and `L\\XL` into a string as in the product's text, and forgets to double the backslash.
A backslash that begins no JSON escape is kept. An ambiguous one ("\\n") is decided word by word: by the reading that
occurs in the record's texts or is a member of the enum. Without texts, or if they have neither, it is JSON's.

    text       written      read
    a\\nb       "a\\nb"       a\\nb      the text has no line break between a and b
    L\\XL       "L\\XL"       L\\XL      not an escape of JSON
    Levi's     "Levi\\'s"    Levi's    the text has no backslash
    size S\\    "S\\",        S\\        the line ends, and the text has S\\
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Literal

from hpd_core.text import absence
from hpd_core.text.grammars import PatternError, is_by_grammar, matches
from hpd_core.text.number_forms import BARE_NUMBER
from hpd_core.text.numbers import read_number, settle
from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Integer,
    ListOf,
    Number,
    OneOf,
    Pattern,
    ValueKind,
    Verbatim,
)
from hpd_core.types import Attribute, Choice, Value, ValueStatus, is_encodable

_BOOLEANS = {"true": "true", "yes": "true", "false": "false", "no": "false"}
_ITEM_SEPARATOR = "; "
_PATTERN_SECONDS = 1.0
_NUMBER_ENDS = frozenset(" \t,]}")


def parse_value(
    attribute: Attribute,
    raw: str,
    *,
    closed: bool,
    fields: Mapping[str, str] | None = None,
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
    is_number = attribute.type == "number"
    found = _decoded(line.strip(), closed, fields, attribute.vocabulary.spellings, is_number=is_number)
    if isinstance(found, str):
        return Value(None, (), found, line)
    answer, rest = found
    num_dropped = len(rest.strip().removeprefix(",").strip())
    items = _items(attribute, answer, fields)
    if not items:
        return Value(None, (), "invalid" if items is None else "absent", line, num_dropped=num_dropped)
    return Value(join_items(items), items, "value", line, num_dropped=num_dropped)


def _decoded(
    text: str, closed: bool, fields: Mapping[str, str] | None, members: Iterable[str] = (), *, is_number: bool
) -> tuple[Any, str] | Literal["invalid", "truncated"]:
    """Return the first JSON value of a line and the rest of the line; the status of one that has none."""
    try:
        # JSON would end "20,000" at its comma and "1/2" at its slash.
        bare = BARE_NUMBER.match(text) if is_number else None
        answer, end = (
            (Numeral(bare.group()), bare.end()) if bare else raw_decode(text, fields, is_whole=closed, members=members)
        )
    except (ValueError, RecursionError):
        return "invalid" if closed else "truncated"
    rest = text[end:]
    # Quotes and brackets end a string or a list; a number at the cut might have had more digits.
    if not closed and isinstance(answer, Numeral) and (rest[:1] not in _NUMBER_ENDS or (is_number and rest == ",")):
        return "truncated"
    return answer, rest


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
    if member is None and not isinstance(answer, Numeral):
        texts = fields if attribute.is_text else None
        if absence.read(text, attribute.name, texts) is not absence.Reading.VALUE:
            return ""
    if attribute.type == "boolean":
        return _BOOLEANS.get(text.casefold())
    if attribute.type == "number":
        return _number(text, attribute.unit.names if attribute.unit else (), fields)
    return member if attribute.type == "enum" else str(text)


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


_NUMBER, _BOOLEAN = Attribute(name="value", type="number"), Attribute(name="value", type="boolean")
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
    if isinstance(kind, ListOf) and kind.most is not None and (first := _first_items(line, kind.most)) is not None:
        line, closed = first, True
    if is_by_grammar(kind):
        return _by_grammar(kind, line, closed)
    item = kind.item if isinstance(kind, ListOf) else kind
    is_typed = isinstance(item, Number | Integer | Boolean)
    texts = [value for value in item.values if isinstance(value, str)] if isinstance(item, OneOf) else ()
    is_number = isinstance(kind, Number | Integer)
    found = _decoded(line, closed, fields, texts, is_number=is_number)
    if isinstance(found, str):
        return None, found
    answer, rest = found
    if not closed and not rest and not is_typed and not isinstance(answer, str | list):
        return None, "truncated"
    members = answer if isinstance(answer, list) else [answer]
    if answer is None or (isinstance(kind, Verbatim) and kind.nullable and _says_nothing(answer, fields)):
        values = None
    elif isinstance(answer, list) and not isinstance(kind, ListOf):
        return None, "invalid"
    elif is_typed:
        items = [_item(_BOOLEAN if isinstance(item, Boolean) else _NUMBER, member, fields) for member in members]
        values = [_plain(item, text) for text in items] if any(items) or None in items or not items else None
    else:
        values = [_scalar(item, member) for member in members]
    if values is None:
        return None, "absent" if kind.nullable else "invalid"
    if None in values or isinstance(kind, ListOf) != isinstance(answer, list):
        return None, "invalid"
    return (values if isinstance(kind, ListOf) else values[0]), "value"


def _by_grammar(kind: ValueKind, line: str, closed: bool) -> tuple[Any, ValueStatus]:
    """Read JSON. Of patterns all texts are searched: a grammar has limits, and there may be none."""
    value, status = _whole(kind, line, closed)
    item = kind.item if isinstance(kind, ListOf) else kind
    if status != "value" or not isinstance(item, Pattern):
        return value, status
    texts, until = value if isinstance(kind, ListOf) else [value], time.monotonic() + _PATTERN_SECONDS
    try:
        is_fit = isinstance(texts, list) and all(
            isinstance(text, str) and matches(item.regex, text, until - time.monotonic()) for text in texts
        )
    except PatternError:
        is_fit = False
    return (value, "value") if is_fit else (None, "invalid")


def _whole(kind: ValueKind, line: str, closed: bool) -> tuple[Any, ValueStatus]:
    try:
        value = json.JSONDecoder().raw_decode(line)[0]
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # 1e999, and half of a surrogate pair
    except (ValueError, RecursionError):
        return None, "invalid" if closed else "truncated"
    if not closed and not isinstance(value, list | dict | str):
        return None, "truncated"  # a number might have had more digits
    return (None, "absent") if value is None and kind.nullable else (value, "value")


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


def _plain(kind: ValueKind, text: str | None) -> Any:
    """Return a number or boolean from its text; None if it is not of this kind."""
    if not text:
        return None
    if isinstance(kind, Boolean):
        return text == "true"
    # A comma is left if the texts do not settle its meaning: it is read as in English.
    number = Decimal(text.replace(",", ""))
    if number == number.to_integral_value():
        return int(number)
    return None if isinstance(kind, Integer) else float(number)


def _says_nothing(answer: Any, fields: Mapping[str, str]) -> bool:
    """Return whether a run of the text is a word for nothing: "N/A" may be copied as any other run."""
    return isinstance(answer, str) and absence.read(answer, "", fields) is not absence.Reading.VALUE


def _scalar(kind: ValueKind, answer: Any) -> Any:
    """Return the answer as plain JSON; None if it is not of this kind."""
    if isinstance(answer, Numeral):
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


class Numeral(str):
    """JSON number as it was written: 1.50 stays 1.50."""


_STRICT = json.JSONDecoder(parse_float=Numeral, parse_int=Numeral, strict=False)
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_STRING = re.compile(r'((?:[^"\\]|\\.)*)"', re.DOTALL)
# A word with a backslash in it; what joins words is none of it, so that each is looked up by itself.
_LETTER = r"[^\s,;/|+&()\\]"
_WORD = re.compile(rf"{_LETTER}*(?:\\.{_LETTER}*)+", re.DOTALL)
_NEEDLESS = re.compile(r"\\(?=[^\w\s\\])")
_UNPRINTABLE = re.compile("[\b\f\r]")
# A quote after a backslash where a string may end.
_SWALLOWED = re.compile(r'\\"(?=\s*(?:[,\]}]|\Z))')


def raw_decode(
    text: str, fields: Mapping[str, str] | None, *, is_whole: bool, members: Iterable[str] = ()
) -> tuple[Any, int]:
    """Return the first JSON value of `text` and the offset of its end; numbers are `Numeral`s.

    Args:
        text: begins with the value.
        fields: the record's texts; None if they are not known.
        is_whole: False for a text that was cut: a value that ends with it may be incomplete.
        members: members of the enum, which a model copies like words of the texts.

    Raises:
        ValueError: there is no value.
        RecursionError: the value is nested too deeply.
    """
    if "\\" not in text:
        return _STRICT.raw_decode(text)
    document = "\n".join((*members, *(fields or {}).values())).casefold()
    try:
        return _Decoder(document).raw_decode(text)
    except ValueError:
        if not document or not is_whole:
            raise
    return _Decoder(document, ends_at_swallowed=True).raw_decode(text)


class _Decoder(json.JSONDecoder):
    """JSON decoder that reads strings with the help of the record's text."""

    def __init__(self, document: str, *, ends_at_swallowed: bool = False) -> None:
        super().__init__(parse_float=Numeral, parse_int=Numeral, strict=False)
        self._document = document
        self._ends_at_swallowed = ends_at_swallowed
        self.parse_string = self._read_string
        self.scan_once = py_make_scanner(self)

    def _read_string(self, text: str, start: int, strict: bool = True) -> tuple[str, int]:
        """Return the string whose opening quote is before `start`, and the offset of its end."""
        for place in _SWALLOWED.finditer(text, start) if self._ends_at_swallowed else ():
            for end in ("\\", '"'):
                string = self._read_body(text[start : place.start()]) + end
                if self._is_in_document(string.split()[-1]):
                    return string, place.end()
        found = _STRING.match(text, start)
        if found is None:
            raise json.JSONDecodeError("Unterminated string", text, start - 1)
        return self._read_body(found[1]), found.end()

    def _read_body(self, body: str) -> str:
        if "\\" not in body:
            return body
        whole = self._reading_in_document(body)
        return _WORD.sub(lambda word: self._read_word(word[0]), body) if whole is None else whole

    def _read_word(self, word: str) -> str:
        reading, meant = self._reading_in_document(word), _by_json(word)
        if reading is not None:
            return reading
        if self._document and _UNPRINTABLE.search(meant):
            return word.replace('\\"', '"')
        return meant.replace("\\'", "'")

    def _reading_in_document(self, text: str) -> str | None:
        meant = _by_json(text)
        readings = (text, text.replace('\\"', '"'), meant, _NEEDLESS.sub("", meant))
        return next(filter(self._is_in_document, readings), None)

    def _is_in_document(self, text: str) -> bool:
        return text.strip(".:!?").casefold() in self._document


def _by_json(body: str) -> str:
    """Decode the text between quotes as JSON; a backslash that begins no escape stands for itself."""
    text: str = json.loads(f'"{_ESCAPE.sub(_keep_unknown, body)}"', strict=False)
    return text


def _keep_unknown(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] else "\\\\"
