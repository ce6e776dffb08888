"""Validation of an answer by its schema: jsonschema says whether it fits, and where it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from typing import Any

import regex
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from hpd_core.json_schema.answers import Problem, pointer
from hpd_core.text.pattern_syntax import PatternError, read_pattern

_PATTERN_SECONDS = 1.0
_seconds_left: ContextVar[float] = ContextVar("seconds that the patterns of an answer may still take")


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """Check a pattern with a time limit: it may take very long, and Python's own search cannot be stopped."""
    if not isinstance(instance, str):
        return
    left, started = _seconds_left.get(), time.monotonic()
    try:
        read_pattern(pattern)  # an enum's was not read before, and the search below compiles it, however large
        found = regex.search(pattern, instance, timeout=max(left, 0.001))
    except PatternError as error:
        yield ValidationError(f"whether it matches {pattern[:80]!r} cannot be checked: {error}")
    except regex.error as error:
        yield ValidationError(f"{pattern!r} is no regular expression: {error}")
    except TimeoutError:
        yield ValidationError(
            f"whether it matches {pattern!r} was not found: the patterns of an answer have {_PATTERN_SECONDS} s"
        )
    else:
        if found is None:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")
    finally:
        _seconds_left.set(left - (time.monotonic() - started))


def _multiple_of(validator: Any, step: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Check a multiple by the written decimals: as floats, 19.99 is not a multiple of 0.01."""
    if validator.is_type(instance, "number") and _exact(instance) % _exact(step):
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


_Validator = extend(  # type: ignore[no-untyped-call]
    # An answer has the fields that were asked for: there are no others, and to look for them takes ever so long.
    Draft202012Validator,
    {"pattern": _pattern, "multipleOf": _multiple_of, "unevaluatedProperties": lambda *_: ()},
)


def checker(schema: Mapping[str, Any]) -> Callable[[Any], list[Problem]]:
    """Return a function that finds the problems of an answer."""
    # A registry that fetches nothing: a stranger's schema may name any address.
    validator = _Validator(schema, format_checker=FormatChecker(), registry=Registry())

    def problems(data: Any) -> list[Problem]:
        _seconds_left.set(_PATTERN_SECONDS)
        try:
            errors = [plain for error in validator.iter_errors(data) for plain in _plain(error)]
        except Unresolvable as error:
            return [Problem("", f"the schema refers to what is not in it: {error.ref}")]
        except (ArithmeticError, RecursionError, ValueError) as error:
            # Of a format's own checker: `regex` compiles the text as Python does.
            return [Problem("", f"whether it fits the schema cannot be checked: {type(error).__name__}: {error}"[:300])]
        return [Problem(pointer(error.absolute_path), error.message[:300]) for error in errors]

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
