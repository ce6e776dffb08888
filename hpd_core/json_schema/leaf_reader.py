"""Reader of one value's schema: its kind, and its description for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from hpd_core.errors import SchemaError
from hpd_core.json_schema.form import Leaf, Node
from hpd_core.text.pattern_syntax import PatternError
from hpd_core.text.patterns import pattern_dfa
from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Integer,
    JsonString,
    Number,
    OneOf,
    Pattern,
    ValueKind,
    Verbatim,
    spelled,
)

TEXT_TOKENS, LIST_TOKENS, ROWS_TOKENS = 96, 128, 256
"""Default lengths in tokens of texts, of lists, and of the keys of a list's rows."""
_TYPED_TOKENS = 48
_MOST_TOKENS = 1_000_000
_MOST_LISTED = 50

_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_DAYS = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
_HOURS = "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
FORMATS: Mapping[str, tuple[str, str]] = {
    "date": (rf"^{_DATE}$", "a date as YYYY-MM-DD"),
    "time": (rf"^{_TIME}{_ZONE}$", "a time as HH:MM:SSZ"),
    "date-time": (rf"^{_DATE}T{_TIME}{_ZONE}$", "a date and time as YYYY-MM-DDTHH:MM:SSZ"),
    "duration": (rf"^P([0-9]+W|{_DAYS}(T{_HOURS})?|T{_HOURS})$", "as P1DT2H"),
    "email": (r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9]([A-Za-z0-9-]*)(\.[A-Za-z0-9-]+)+$", "an e-mail address"),
    "uri": (r"^[A-Za-z][A-Za-z0-9+.-]*:[^ \"<>\\^`{|}]+$", "a URI"),
    "uuid": (r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", "a UUID"),
}
"""Pattern of each format, and its description for the model. Other formats are described by their names."""

_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}


def read_leaf(schema: Mapping[str, Any], type_: Any, where: str, *, takes_null: bool, can_miss: bool) -> Leaf:
    """Return the value that a plain schema (`References.resolved`) describes.

    Raises:
        SchemaError: it is not a value, or cannot be decoded.
    """
    kind = _kind(schema, type_, where, takes_null or can_miss)
    default = TEXT_TOKENS if isinstance(kind, JsonString | Pattern | Verbatim) else _TYPED_TOKENS
    return Leaf(kind, _note(schema, kind), takes_null, max_tokens_of(schema, default, where))


def max_tokens_of(schema: Mapping[str, Any], default: int, where: str) -> int:
    """Return the length of a value in tokens, by its schema.

    Raises:
        SchemaError: it is not a number of tokens.
    """
    found = schema.get("x-hpd-max-tokens", default)
    if type(found) is not int or not 1 <= found <= _MOST_TOKENS:
        raise SchemaError(where, f"'x-hpd-max-tokens' is a number of tokens, from 1 to {_MOST_TOKENS:,}")
    return found


def is_list_of_scalars(schema: Mapping[str, Any]) -> bool:
    """Return whether items of this schema are scalars."""
    return "enum" in schema or "const" in schema or schema.get("type") in ("string", "number", "integer", "boolean")


def key_kind(node: Node) -> JsonString | Pattern | OneOf | None:
    """Return the kind of a field that can tell objects apart, which is a text; None if it cannot."""
    return node.kind if isinstance(node, Leaf) and isinstance(node.kind, JsonString | Pattern | OneOf) else None


def _kind(schema: Mapping[str, Any], type_: Any, where: str, nullable: bool) -> Any:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return _one_of(values, type_, where, nullable)
    match type_:
        case "number":
            return Number(nullable)
        case "integer":
            return Integer(nullable)
        case "boolean":
            return Boolean(nullable)
        case "string":
            return _text(schema, where, nullable)
    raise SchemaError(where, "a field that may be anything cannot be asked for: say its 'type'")


def _one_of(values: Any, type_: Any, where: str, nullable: bool) -> OneOf:
    if type_ is not None:
        values = [value for value in values if Draft202012Validator.TYPE_CHECKER.is_type(value, type_)]
    if not values:
        raise SchemaError(where, "an enum without a value of its type cannot be decoded: add one")
    for value in values:
        if isinstance(value, list | dict):
            raise SchemaError(where, "an enum of lists or objects cannot be decoded: give each a name, and list those")
    return OneOf(tuple({spelled(value): value for value in values}.values()), nullable)


def _text(schema: Mapping[str, Any], where: str, nullable: bool) -> JsonString | Pattern | Verbatim:
    copied = schema.get("x-hpd-verbatim", False)
    if not isinstance(copied, bool) or (copied and ("pattern" in schema or "format" in schema)):
        raise SchemaError(where, "'x-hpd-verbatim' is true for a text that is copied, without a pattern or a format")
    if copied:
        return Verbatim(nullable)
    pattern, format_ = schema.get("pattern"), FORMATS.get(schema.get("format", ""))
    if pattern is None:
        return JsonString(nullable) if format_ is None else Pattern(format_[0], nullable)
    try:
        pattern_dfa(pattern)
    except PatternError as error:
        raise SchemaError(where, f"its pattern cannot be decoded: {error}") from error
    return Pattern(pattern, nullable)


def _note(schema: Mapping[str, Any], kind: ValueKind) -> str:
    texts = [schema.get("title"), schema.get("description")]
    notes = [" ".join(text.split()) for text in texts if isinstance(text, str) and text.strip()]
    match kind:
        case OneOf():
            notes.append(f"one of {listed(kind.spellings, ', ')}")
        case Integer():
            notes.append("a whole number")
        case Number():
            notes.append("a number")
        case Boolean():
            notes.append("true or false")
        case JsonString() | Pattern() | Verbatim() | FreeText():
            notes += _text_notes(schema)
    notes += [f"{words} {schema[name]}" for name, words in _LIMITS.items() if name in schema]
    return "; ".join([*notes, *(["or null"] if kind.nullable else [])])


def listed(values: Sequence[str], separator: str) -> str:
    """Join values for the model; a long list is cut."""
    rest = len(values) - _MOST_LISTED
    return separator.join(values[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _text_notes(schema: Mapping[str, Any]) -> list[str]:
    name = schema.get("format")
    if name is not None:
        return [FORMATS[name][1] if name in FORMATS else f"in the format {name}"]
    return [f"matches {schema['pattern']}"] if "pattern" in schema else []
