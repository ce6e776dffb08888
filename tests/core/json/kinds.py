"""Kinds said another way: a regular expression of what a value looks like, and what the oracle may write."""

from __future__ import annotations

from typing import Any

import regex

from hpd_core import Attribute
from hpd_core.baselines.reference import Choices
from hpd_core.text.value_kinds import Boolean, FreeText, Integer, JsonString, ListOf, OneOf, Pattern, ValueKind
from tests.core.constrained import answer_pattern, choices_by

_LETTER = (
    r"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    r"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
"""That is not of ASCII, as bytes in UTF-8."""
_CHARACTER = rf"(?:[\x20\x21\x23-\x5b\x5d-\x7f]|\\[\x22\x5c]|{_LETTER})"
"""Of a string, with as few backslashes as it may have."""
_HEX = "[0-9A-Fa-f]"
_ESCAPED = (
    rf"\\(?:[\x20-\x74\x76-\x7f]|{_LETTER}|u(?:(?![dD][89A-Fa-f]){_HEX}{{4}}"
    rf"|[dD][89ABab]{_HEX}{{2}}\\u[dD][C-Fc-f]{_HEX}{{2}}))"
)
STRING = rf'"(?:{_CHARACTER}|{_ESCAPED})*"'
"""A string of any text."""

PATTERNS = {
    "^[A-Z]{2}[0-9]{1,3}$": "[A-Z]{2}[0-9]{1,3}",
    "^(red|redder|blue)$": "(?:red|redder|blue)",
    "e[0-9]": f"{_CHARACTER}*e[0-9]{_CHARACTER}*",
}
"""Patterns, and what matches, between quotes and as a whole."""

_GROUPED = r"-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+)"


def value_pattern(kind: ValueKind) -> str:
    """What a value looks like."""
    match kind:
        case JsonString():
            return STRING
        case Pattern():
            return f'"{PATTERNS[kind.regex]}"'
        case OneOf():
            return "|".join(regex.escape(text) for text in kind.spellings)
        case Integer():
            return f'{_GROUPED}|"{_GROUPED}"'
        case ListOf(JsonString() | Pattern() | OneOf() | Integer() as item):
            inner = "-?(?:0|[1-9][0-9]{0,17})" if isinstance(item, Integer) else value_pattern(item)
            return rf"\[(?:(?:{inner})(?:, (?:{inner}))*)?\]"
    item = kind.item if isinstance(kind, ListOf) else kind
    type_ = "boolean" if isinstance(item, Boolean) else "number"
    pattern = answer_pattern(Attribute(name="a", type=type_, multiple=isinstance(kind, ListOf)))
    assert pattern is not None
    return pattern.pattern.removeprefix(" {0,2}(?:null|").removesuffix(r"),?\n")


def kind_choices(kind: ValueKind, tokenizer: Any) -> Choices:
    """What the oracle may write of a value of this kind."""
    if isinstance(kind, FreeText):
        return lambda tokens: None
    null = "|null" if kind.nullable else ""
    return choices_by(f" {{0,2}}(?:{value_pattern(kind)}{null}),?\n", tokenizer)
