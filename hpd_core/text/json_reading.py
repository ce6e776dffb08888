"""Reader of a model's JSON that repairs backslashes.

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
from collections.abc import Iterable, Mapping
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any


class Literal(str):
    """JSON number as it was written: 1.50 stays 1.50."""


_STRICT = json.JSONDecoder(parse_float=Literal, parse_int=Literal, strict=False)
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
    """Return the first JSON value of `text` and the offset of its end; numbers are `Literal`s.

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
        super().__init__(parse_float=Literal, parse_int=Literal, strict=False)
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
