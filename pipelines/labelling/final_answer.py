"""Parser of a teacher's answer into values by attribute: the one JSON object after its reasoning, or why there is none.

Only strict JSON is read, and only if nothing could take it back: reasoning that is not closed, a second object, words
after it. Then the teacher is asked again.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.plain_data import dotted
from hpd_core.text.values import parse_value

_TAG = re.compile(r"```\w*|<[^<>]*>")
_WORD = re.compile(r"[^\W_]")
_FILLED_IN = re.compile(r"\.{2,}|…|<.*>|(?:string|text|value|number|boolean|integer|float)", re.IGNORECASE | re.DOTALL)
_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad)"
_OPENED = re.compile(
    rf"<{_NAMES}>|\[THINK\]|<\|START_THINKING\|>|<\|channel\|>\s*(?:analysis|commentary)", re.IGNORECASE
)
_CLOSED = re.compile(
    rf"</{_NAMES}>|\[/THINK\]|<\|END_THINKING\|>|<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>",
    re.IGNORECASE,
)
# A value begins here: a brace in prose has neither a quote nor an end after it.
_START = re.compile(r"""\{(?=\s*["'“}])|\[(?=\s*[{\["])""")

DISPUTED = object()
"""Value of a key that is written with different values: nothing says which of them is meant."""


class FinalAnswer(NamedTuple):
    """The values of an answer by attribute, if it names them, and its problems by kind."""

    values: dict[str, Value]
    problems: Counter[str]


NoAnswer = Literal["empty", "none", "template", "unclosed", "thinking", "words", "several"]
USELESS: Mapping[NoAnswer, tuple[str, str]] = {
    "empty": ("no_completion", "it is empty"),
    "none": ("not_json", "it holds no complete JSON object"),
    "template": ("not_json", "its JSON object only shows the form of an answer"),
    "unclosed": ("not_json", "it holds no complete JSON object"),
    "thinking": ("not_json", "its thoughts have no end, and no answer behind them"),
    "words": ("several_answers", "words stand after its JSON object, which may take it back"),
    "several": ("several_answers", "it holds several JSON objects"),
}
"""Why there is no answer: the reason to count by, and the words for people and for the teacher."""


def read_answer(
    schema: CategorySchema, text: str, fields: Mapping[str, str], *, is_cut: bool = False
) -> FinalAnswer | NoAnswer:
    """Parse a teacher's text about the product with `fields`; `is_cut`: the text was cut at its limit.

    A key that equals one attribute's name except for case and punctuation counts as that attribute. Attributes in
    objects, as schema files nest them, count under their full names: {"size": {"width": 12}} is {"size.width": 12}.
    """
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    counts = Counter(map(_spelling, attributes))
    spelled = {_spelling(name): name for name in attributes if counts[_spelling(name)] == 1}
    objects: dict[str, list[str]] = defaultdict(list)
    for attribute in schema.attributes:
        for depth in range(1, len(attribute.path)):
            objects[_spelling(dotted(attribute.path[:depth]))].append(attribute.name)
    answer = _only_object(text, {*counts, *objects}, is_cut)
    if isinstance(answer, str):
        return answer
    problems, written = Counter[str](), dict[str, Any]()
    for key, value in _full_names(answer, objects):
        name = key if key in attributes else spelled.get(_spelling(key))
        if name is None:
            problems["unknown_key"] += 1
        else:
            problems["misspelled_key"] += name != key
            written[name] = value if written.get(name, value) == value else DISPUTED
    if _is_template(written, fields):
        return "template"
    values: dict[str, Value] = {}
    for name, value in written.items():
        if value is DISPUTED:
            problems["doubled_key"] += 1
            continue
        if isinstance(value, list) and len(value) == 1 and not attributes[name].multiple:
            problems["wrapped_value"] += 1
            value = value[0]
        values[name] = _parsed(attributes[name], value, fields)
    problems["missing_key"] = len(attributes) - len(written)
    return FinalAnswer(values, +problems)


def _only_object(text: str, known: set[str], is_cut: bool) -> dict[str, Any] | NoAnswer:
    """Return the one object after the reasoning, taken out of {"product": {...}} or [{...}]."""
    spoken = after_reasoning(text)
    if spoken is None:
        return "thinking"
    try:
        found = find_json(spoken)
    except ValueError:
        return "unclosed"
    if len(found) != 1:
        return "several" if found else "none" if text.strip() else "empty"
    value, start, end = found[0]
    before, after = spoken[:start], spoken[end:]
    if "{" in before + after:
        return "unclosed"
    if _WORD.search(_TAG.sub("", after)) or (is_cut and _WORD.search(_TAG.sub("", before))):
        return "words"
    while len(value) == 1 and (isinstance(value, list) or not known & set(map(_spelling, value))):
        (value,) = value if isinstance(value, list) else value.values()
        if not isinstance(value, list | dict):
            return "none"
    return value if isinstance(value, dict) else "several" if value else "none"


def _full_names(answer: Mapping[str, Any], objects: Mapping[str, Sequence[str]], outer: str = "") -> Iterator[Any]:
    """Yield the full name and the value of each attribute; null for an object is null for all that is in it."""
    for key, value in answer.items():
        inside = objects.get(_spelling(outer + key), ())
        if inside and isinstance(value, dict):
            yield from _full_names(value, objects, f"{outer}{key}.")
        elif inside and (value is None or value is DISPUTED):
            yield from ((name, value) for name in inside)
        else:
            yield outer + key, value


def _is_template(written: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    """Return whether it only shows the form: {"Brand": "...", "Colour": "<colour>"}."""
    document = "\n".join(fields.values())
    shown = [(name, value) for name, value in written.items() if value is not None]
    return bool(shown) and all(
        isinstance(value, str)
        and value not in document
        and (_FILLED_IN.fullmatch(value.strip()) or _spelling(value) == _spelling(name))
        for name, value in shown
    )


def _parsed(attribute: Attribute, value: Any, fields: Mapping[str, str]) -> Value:
    written = json.dumps(value, default=lambda _: {})
    if r"\ufffd" in written and not any("\ufffd" in text for text in fields.values()):
        written = "{}"  # the endpoint lost a letter: no value of any attribute
    return parse_value(attribute, written, closed=True, fields=fields)


def _spelling(key: str) -> str:
    return " ".join(re.split(r"[\W_]+", key.casefold())).strip()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = value if found.get(key, value) == value else DISPUTED
    return found


# Numbers stay as they were written: 1.50 is not 1.5, and one of 5,000 digits is no trouble. NaN fits no attribute.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=str, parse_int=str, parse_constant=lambda _: {}, strict=False
)


def after_reasoning(text: str) -> str | None:
    """Return the text after the last closed reasoning block; None if one is left open."""
    *_, spoken = _CLOSED.split(text)
    return None if _OPENED.search(spoken) else spoken


def find_json(text: str) -> list[tuple[Any, int, int]]:
    """Find the outermost objects and lists of `text`, in order, with their spans.

    Raises:
        ValueError: a value begins that is not JSON, or does not end.
    """
    found: list[tuple[Any, int, int]] = []
    position = 0
    while (begin := _START.search(text, position)) is not None:
        try:
            value, position = _DECODER.raw_decode(text, begin.start())
        except RecursionError as error:
            raise ValueError("brackets are nested too deeply") from error
        found.append((value, begin.start(), position))
    return found
