"""Whether an answer fits its schema: jsonschema says so, and where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import regex
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from hpd_core.json_schema.answers import Problem, pointer

_PATTERN_SECONDS = 1.0


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """A pattern may take longer than anybody waits: Python's own search cannot be stopped."""
    if not isinstance(instance, str):
        return
    try:
        found = regex.search(pattern, instance, timeout=_PATTERN_SECONDS)
    except regex.error as error:
        yield ValidationError(f"{pattern!r} is no regular expression: {error}")
    except TimeoutError:
        yield ValidationError(f"whether it matches {pattern!r} was not found within {_PATTERN_SECONDS} s")
    else:
        if found is None:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]


def checker(schema: Mapping[str, Any]) -> Callable[[Any], list[Problem]]:
    """What finds the problems of an answer."""
    # A registry that fetches nothing: a stranger's schema may name any address.
    validator = _Validator(schema, format_checker=FormatChecker(), registry=Registry())

    def problems(data: Any) -> list[Problem]:
        try:
            errors = [plain for error in validator.iter_errors(data) for plain in _plain(error)]
        except Unresolvable as error:
            return [Problem("", f"the schema refers to what is not in it: {error.ref}")]
        return [Problem(pointer(error.absolute_path), error.message[:300]) for error in errors]

    return problems


def _is_other(error: ValidationError) -> bool:
    """Whether a field says that an object has another shape."""
    return error.validator in ("const", "enum") and len(error.relative_path) == 1


def _plain(error: ValidationError) -> Iterator[ValidationError]:
    """Of what may also be null, or have another shape: what is wrong with it as what it is meant to be."""
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
