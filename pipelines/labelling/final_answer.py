"""From what a teacher wrote to the values of its final answer, by attribute: read leniently, problems counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text.values import parse_value

_THOUGHTS = re.compile(r"\A.*</think>", re.DOTALL)
_MAX_CANDIDATES = 100  # places where an object may begin, so that an answer full of braces costs no minutes


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys were written twice; the first of them counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self.num_doubled = len(pairs) - len(self)


# Numbers stay as they were written: 1.50 is not 1.5.
_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_float=str, parse_int=str, parse_constant=str, strict=False)


def read_answer(schema: CategorySchema, text: str) -> tuple[dict[str, Value], Counter[str]] | None:
    """The values in a teacher's answer, by attribute, and what was wrong with its keys. None: it holds no JSON object.

    Fences, thoughts and words around the object are skipped. A key that is equal to one attribute's name but for
    case and punctuation counts as that attribute.
    """
    answer = _find_object(schema, text)
    if answer is None:
        return None
    values: dict[str, Value] = {}
    problems = Counter({"doubled_key": answer.num_doubled})
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    spelled = _unique_spellings(attributes)
    # Keys that are right to the letter come first: a misspelled one never takes their place.
    for key in sorted(answer, key=lambda key: key not in attributes):
        name = key if key in attributes else spelled.get(_spelling(key))
        if name is None or name in values:
            problems["unknown_key"] += 1
            continue
        problems["misspelled_key"] += name != key
        values[name] = parse_value(attributes[name], json.dumps(answer[key]), closed=True)
    problems["missing_key"] = len(attributes) - len(values)
    return values, +problems


def _find_object(schema: CategorySchema, text: str) -> _Object | None:
    """The object in `text` that has the most of the schema's keys; the first of several."""
    text = _THOUGHTS.sub("", text)
    names = {_spelling(attribute.name) for attribute in schema.attributes}
    best: tuple[int, _Object] | None = None
    start = text.find("{")
    for _ in range(_MAX_CANDIDATES):
        if start < 0:
            break
        end = start + 1
        try:
            candidate, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            pass
        else:
            known = _count_known(candidate, names)
            while not known and len(candidate) == 1 and isinstance(inner := next(iter(candidate.values())), _Object):
                candidate, known = inner, _count_known(inner, names)  # {"product": {...}}
            if best is None or known > best[0]:
                best = known, candidate
        start = text.find("{", end)
    return best[1] if best is not None else None


def _count_known(candidate: _Object, names: set[str]) -> int:
    return sum(_spelling(key) in names for key in candidate)


def _unique_spellings(attributes: Mapping[str, Attribute]) -> dict[str, str]:
    counts = Counter(_spelling(name) for name in attributes)
    return {_spelling(name): name for name in attributes if counts[_spelling(name)] == 1}


def _spelling(key: str) -> str:
    return " ".join(re.split(r"[\W_]+", key.casefold())).strip()
