"""Results of `Engine.extract_json`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from typing import Any

import regex
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from hpd_core.requests.calls import AbandonableFuture
from hpd_core.text.grammars import PatternError, matches
from hpd_core.types import ValueStatus


@dataclass(frozen=True, slots=True)
class Problem:
    """Error in a part of the answer: `path` is its JSON pointer, "" is all of it."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """Answer to one field.

    Attributes:
        path: JSON pointer, as "/buyer/name" or "/lines/0/price".
        value: plain JSON; None unless the status is "value".
        text: as the model wrote it. The keys of a list's items were written in one value, which each of them shows.
        status: "value", "absent" (null), "truncated", "invalid" or "error".
        num_tokens, logprob_mean, logprob_min, probability: as in `Completion`; constants have no tokens and
            probability 1.
        is_whole: whether it was decoded as a whole, under the grammar of its schema: the schema does not say which
            fields it has.
    """

    path: str
    value: Any
    text: str = ""
    status: ValueStatus = "value"
    num_tokens: int = 0
    logprob_mean: float | None = None
    logprob_min: float | None = None
    probability: float | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class JsonResult:
    """Answer for one document.

    Attributes:
        data: plain JSON that fits the schema, unless there are problems; None if the document was not decoded.
        problems: parts that do not fit, by path, and why; if empty, `data` is valid.
        fields: by path, in the order in which they were asked.
        num_prompt_tokens: of the document with all around it, and of the text before each value.
        num_output_tokens: of all values.
    """

    data: Any
    problems: tuple[Problem, ...] = ()
    fields: Mapping[str, FieldAnswer] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0


class JsonFuture(AbandonableFuture[list[JsonResult]]):
    """Results of one `Engine.submit_json`, one per document, in order. Its metrics are not counted."""


def pointer(path: Iterable[str | int]) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_DAYS = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOURS = "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
FORMATS: Mapping[str, tuple[str, str]] = {
    "date": (rf"^{_DATE}$", "a date as YYYY-MM-DD"),
    "time": (rf"^{_TIME}{_ZONE}$", "a time as HH:MM:SSZ"),
    "date-time": (rf"^{_DATE}T{_TIME}{_ZONE}$", "a date and time as YYYY-MM-DDTHH:MM:SSZ"),
    "duration": (rf"^P([0-9]+W|{_DAYS}(T{_HOURS})?|T{_HOURS})$", "as P1DT2H"),
    "email": (r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9]([A-Za-z0-9-]*)(\.[A-Za-z0-9-]+)+$", "an e-mail address"),
    "uri": (r"^[A-Za-z][A-Za-z0-9+.-]*:[^ \"<>\\^`{|}]+$", "a URI"),
    "hostname": (rf"^{_LABEL}(\.{_LABEL})*$", "a host name"),
    "uuid": (r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", "a UUID"),
}
"""Pattern of each format, and its description for the model. Other formats are described by their names."""

_LONGEST_LABEL = 63  # RFC 1123; an automaton that counts is too large
FORMAT_CHECKER = FormatChecker()


def _is_of_format(name: str, value: object) -> bool:
    if not isinstance(value, str):
        return True
    is_short = name != "hostname" or max(map(len, value.split("."))) <= _LONGEST_LABEL
    return is_short and regex.fullmatch(FORMATS[name][0], value) is not None


for _name in ("time", "date-time", "duration", "uri", "hostname"):
    FORMAT_CHECKER.checks(_name)(partial(_is_of_format, _name))

_CHECK_SECONDS = 2.0
_PATTERN_SECONDS = 1.0
_deadline: ContextVar[float] = ContextVar("when the check of an answer ends, by the monotonic clock")
_seconds_left: ContextVar[float] = ContextVar("seconds that the patterns of an answer may still take")


class _UncheckedError(ValueError):
    """Raised if a text cannot be held against a pattern."""


def _is_found(pattern: str, text: str) -> bool:
    """Search within the time that is left: it may take very long, and Python's own search cannot be stopped."""
    left, started = _seconds_left.get(), time.monotonic()
    try:
        return matches(pattern, text, left)
    except PatternError as error:
        raise _UncheckedError(f"whether it matches {pattern[:80]!r} cannot be checked: {error}") from error
    finally:
        _seconds_left.set(left - (time.monotonic() - started))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    try:
        if isinstance(instance, str) and not _is_found(pattern, instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")
    except _UncheckedError as error:
        yield ValidationError(str(error))


_VALUES = frozenset(("const", "enum", "default", "examples"))
_MAPS = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "dependencies", "dependentRequired", "$defs", "definitions")
)
"""Keywords whose value has names that mean nothing to JSON Schema."""


def rewritten(node: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy of a schema, in which `change` has replaced each schema, the inner ones first."""
    if isinstance(node, list):
        return [rewritten(each, change) for each in node]
    if not isinstance(node, Mapping):
        return node
    return change(
        {
            key: value
            if key in _VALUES
            else {name: rewritten(each, change) for name, each in value.items()}
            if key in _MAPS and isinstance(value, Mapping)
            else rewritten(value, change)
            for key, value in node.items()
        }
    )


def _names_in(data: Any) -> set[str]:
    """Return the names of all fields of plain JSON."""
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return set(data if isinstance(data, dict) else ()).union(*map(_names_in, inside))


def _with_names(schema: Any, names: Iterable[str]) -> tuple[Any, dict[str, str]]:
    """Return the schema with each pattern of names as an alternative of those that match it, and what each was.

    jsonschema searches for patterns of names without a time limit; alternatives take none.
    """
    written: dict[str, str] = {}

    def change(node: dict[str, Any]) -> dict[str, Any]:
        if isinstance(patterns := node.get("patternProperties"), dict):
            node["patternProperties"] = {}
            for pattern, each in patterns.items():
                matching = "|".join(re.escape(name) for name in names if _is_found(pattern, name))
                # The comment tells patterns apart that match the same names.
                alternative = f"^({matching or '(?!)'})\\Z(?#{len(written)})"
                written[alternative] = pattern
                node["patternProperties"][alternative] = each
        return node

    return rewritten(schema, change), written


def _multiple_of(validator: Any, step: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Check a multiple by the written decimals: as floats, 19.99 is not a multiple of 0.01."""
    if validator.is_type(instance, "number") and _exact(instance) % _exact(step):
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def draft_of(schema: Any) -> Any:
    """Return jsonschema's validator of the draft that a schema names in `$schema`; of 2020-12 if it names none."""
    return validator_for(schema, default=Draft202012Validator)


@cache
def _validator(draft: Any) -> Any:
    checks = {**draft.VALIDATORS, "pattern": _pattern, "multipleOf": _multiple_of}
    return extend(draft, {name: _in_time(check) for name, check in checks.items()})  # type: ignore[no-untyped-call]


def _in_time(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return the check of a keyword, which gives up at a deadline: parts that refer to others may multiply."""

    def checked(*arguments: Any) -> Any:
        if time.monotonic() > _deadline.get():
            raise _UncheckedError(f"whether it fits the schema was not found in {_CHECK_SECONDS:g} s")
        return check(*arguments)

    return checked


@contextmanager
def recursion_errors() -> Iterator[None]:
    """Raise RecursionError also where the recursion ends in jsonschema's tables (rpds), which panic: no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise RecursionError("a comparison was nested too deeply") from error
        raise


def checker(schema: Mapping[str, Any]) -> Callable[[Any], list[Problem]]:
    """Return a function that finds the problems of an answer."""
    has_patterns = "patternProperties" in repr(schema)

    def problems(data: Any) -> list[Problem]:
        _seconds_left.set(_PATTERN_SECONDS)
        _deadline.set(time.monotonic() + _CHECK_SECONDS)
        try:
            with recursion_errors():
                known, written = _with_names(schema, _names_in(data)) if has_patterns else (schema, {})
                # A registry that fetches nothing: a stranger's schema may name any address.
                validator = _validator(draft_of(schema))(known, format_checker=FORMAT_CHECKER, registry=Registry())
                errors = [plain for error in validator.iter_errors(data) for plain in _plain(error)]
        except Unresolvable as error:
            return [Problem("", f"the schema refers to what is not in it: {error.ref}")]
        except _UncheckedError as error:
            return [Problem("", str(error)[:300])]
        except (ArithmeticError, RecursionError, ValueError) as error:
            # Of a format's own checker: `regex` compiles the text as Python does.
            return [Problem("", f"whether it fits the schema cannot be checked: {type(error).__name__}: {error}"[:300])]
        for found in errors:
            for alternative, pattern in written.items():
                found.message = found.message.replace(repr(alternative), repr(pattern))
        return [Problem(pointer(found.absolute_path), found.message[:300]) for found in errors]

    return problems


def _is_other(error: ValidationError) -> bool:
    """Return whether the error is a field that says that an object has another shape."""
    return error.validator in ("const", "enum") and len(error.relative_path) == 1


def _plain(error: ValidationError) -> Iterator[ValidationError]:
    """Yield the errors of a value that may also be null, or have another shape, as those of its intended shape."""
    alternatives: dict[Any, list[ValidationError]] = {}
    for each in error.context or ():
        if not (each.validator == "type" and each.validator_value == "null"):
            alternatives.setdefault(each.relative_schema_path[0], []).append(each)
    if len(alternatives) > 1:
        alternatives = {number: each for number, each in alternatives.items() if not any(map(_is_other, each))}
    if len(alternatives) != 1:
        yield error
        return
    for each in next(iter(alternatives.values())):
        yield from _plain(each)
