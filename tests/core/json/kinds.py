"""Kinds said another way: a regular expression of what a value looks like, and what the oracle may write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import regex

from hpd_core import Attribute
from hpd_core.text.grammars import Grammars, is_by_grammar
from hpd_core.text.value_kinds import Boolean, FreeText, Integer, JsonString, ListOf, OneOf, ValueKind
from tests.core.constrained import answer_pattern, choices_by
from tests.core.json.test_schema_reader import an_object
from tests.core.oracle import Choices

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

PATTERNS = ["^[A-Z]{2}[0-9]{1,3}$", "^(red|redder|blue)$", "e[0-9]"]
_INTEGER = {"type": "integer"}
WHOLE: list[dict[str, Any]] = [
    {"type": "object", "additionalProperties": _INTEGER},
    {"type": "object", "patternProperties": {"^[a-z]$": _INTEGER}, "additionalProperties": False},
    {"type": "array", "items": {"type": "array", "items": _INTEGER}, "maxItems": 2},
    {"type": ["integer", "boolean"]},
    {"anyOf": [an_object("a", a=_INTEGER), an_object("b", b={"type": "boolean"})]},
    {"enum": [[1], {"a": 2}]},
    {"type": "array", "prefixItems": [_INTEGER, {"type": "boolean"}], "items": False, "minItems": 2},
]

_GROUPED = r"-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+)"


def value_pattern(kind: ValueKind) -> str:
    """What a value looks like."""
    match kind:
        case JsonString():
            return STRING
        case OneOf():
            return "|".join(regex.escape(text) for text in kind.spellings)
        case Integer():
            return f'{_GROUPED}|"{_GROUPED}"'
        case ListOf(JsonString() | OneOf() | Integer() as item):
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
    if is_by_grammar(kind):
        shared = Grammars(tokenizer, len(tokenizer)).matcher(kind)
        assert shared is not None
        matcher = shared.matcher

        def choices(tokens: Sequence[int]) -> list[int]:
            matcher.reset()
            assert matcher.consume_tokens(list(tokens))
            bits = matcher.compute_bitmask()
            return [token for token in range(len(tokenizer)) if bits[token // 8] >> (token % 8) & 1]

        return choices
    null = "|null" if kind.nullable else ""
    return choices_by(f" {{0,2}}(?:{value_pattern(kind)}{null}),?\n", tokenizer)
