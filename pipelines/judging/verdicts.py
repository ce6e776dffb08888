"""Parser of a judge's answer into classes by attribute, and problems of the rest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pipelines.judging.classes import Class, fits, read_class
from pipelines.judging.questions import Values
from pipelines.labelling.json_in_text import Object, find_json

_RESULT = re.compile(r"<result>(.*?)(?:</result>|\Z)", re.IGNORECASE | re.DOTALL)
_MAX_TEXT = 1_000_000  # characters that are looked through
_MAX_TOLD = 5  # attributes that the judge is told of, and people are
_MAX_SHOWN = 40


class VerdictReading(NamedTuple):
    """A parsed answer: a class for each judged attribute, and a problem for each other one."""

    classes: Mapping[str, Class]
    problems: Mapping[str, str]

    @property
    def problem(self) -> str:
        """Description of the problems, for the judge; empty if there are none."""
        told = [f"{name!r} {problem}" for name, problem in list(self.problems.items())[:_MAX_TOLD]]
        more = len(self.problems) - len(told)
        return "; ".join([*told, *([f"and {more} more"] if more else [])])


def read_verdicts(text: str, values: Values) -> VerdictReading:
    """Parse an answer about the attributes in `values`; the last JSON object that names some of them counts."""
    written = _written(text, values)
    classes, problems = {}, {}
    for name, value in values.items():
        found = written.get(name, [])
        judged = read_class(found[0]) if found else None
        if not found:
            problems[name] = "has no class"
        elif any(each != found[0] for each in found):
            problems[name] = "has two classes"
        elif judged is None:
            problems[name] = f"is {str(found[0])[:_MAX_SHOWN]!r}, which is no class"
        elif not fits(judged, value is None):
            problems[name] = f"has {'no' if value is None else 'a'} value, which cannot be {judged!r}"
        else:
            classes[name] = judged
    return VerdictReading(classes, problems)


def _written(text: str, values: Values) -> dict[str, list[Any]]:
    """Return the classes written for each attribute; several, if a key was repeated with different classes.

    A key that equals one attribute's name except for case and white space counts as that attribute.
    """
    counts = Counter(map(_folded, values))
    alone = {_folded(name): name for name in values if counts[_folded(name)] == 1}
    found = _object(text, {*values, *alone})
    written: dict[str, list[Any]] = {}
    for key, value in found.items():
        name = key if key in values else alone.get(_folded(key))
        if name is not None:
            written.setdefault(name, []).extend([value, None] if key in found.disputed else [value])
    return written


def _object(text: str, names: Collection[str]) -> Object:
    """Return the last object that names an attribute: in the last tags that hold one, else anywhere.

    An object that names none is replaced by the last such object inside it.
    """
    for part in [*reversed(_RESULT.findall(text[-_MAX_TEXT:])), text[-_MAX_TEXT:]]:
        try:
            outer = [each.value for each in find_json(part) if isinstance(each.value, Object)]
        except ValueError:
            continue  # a value that is cut, or not JSON: the judge is asked again
        for each in reversed(outer):
            inner = [value for value in each.values() if isinstance(value, Object)]
            for found in (each, *reversed(inner)):
                if any(key in names or _folded(key) in names for key in found):
                    return found
    return Object([])


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
