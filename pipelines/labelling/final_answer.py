"""Parser of a teacher's answer into values by attribute: the one JSON object after its reasoning, or nothing.

If the text holds several different objects, or continues after its object, it is unclear which one counts. Then the
teacher is asked again. Keys are matched leniently, problems are counted.

Answers nested in objects, as schema files nest attributes, flattened to the full name of each.

{"size": {"width": 12, "lid": null}}    is    {"size.width": 12, "size.lid.closure": null}

A teacher is asked for full names, but many answer with objects.

Parser of JSON in a model's text, and of the text after its reasoning.

Only strict JSON is read. Nearly valid or truncated JSON is not a value: the model is asked again.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.plain_data import dotted
from hpd_core.text.values import parse_value

_TAG = re.compile(r"```\w*|<[^<>]*>")
_WORD = re.compile(r"[^\W_]")
_FILLED_IN = re.compile(r"\.{2,}|…|<.*>|(?:string|text|value|number|boolean|integer|float)", re.IGNORECASE | re.DOTALL)
_DAMAGED = json.dumps("\ufffd").strip('"')
_MAX_TEXT = 1_000_000  # characters that are looked through
_MAX_NESTED = 4  # objects around an answer


class FinalAnswer(NamedTuple):
    """The values of an answer by attribute, if it names them, and its problems by kind."""

    values: dict[str, Value]
    problems: Counter[str]


# Why there is no answer: no JSON object; one that only shows the form; one that is not JSON or not closed; reasoning
# that is not closed; words after the object; several objects that differ; a text that is too long.
NoAnswer = Literal["none", "template", "unclosed", "thinking", "words", "several", "too_long"]


def read_answer(
    schema: CategorySchema, text: str, fields: Mapping[str, str], *, is_cut: bool = False
) -> FinalAnswer | NoAnswer:
    """Parse a teacher's text about the product with `fields`; `is_cut`: the text was cut at its limit.

    A key that equals one attribute's name except for case and punctuation counts as that attribute.
    """
    answer = _find_answer(schema, text, is_cut)
    if isinstance(answer, str):
        return answer
    counts = Counter(_spelling(attribute.name) for attribute in schema.attributes)
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    spelled = {_spelling(name): name for name in attributes if counts[_spelling(name)] == 1}
    problems = Counter(doubled_key=answer.num_doubled)
    written: dict[str, list[tuple[str, Any]]] = {}
    for key, value in answer.items():
        name = key if key in attributes else spelled.get(_spelling(key))
        if name is None:
            problems["unknown_key"] += 1
        else:
            problems["misspelled_key"] += name != key
            written.setdefault(name, []).append((key, value))
    if _is_template(written, fields):
        return "template"
    values: dict[str, Value] = {}
    for name, pairs in written.items():
        problems["doubled_key"] += len(pairs) - 1
        value = pairs[0][1]
        if any(key in answer.disputed or other != value for key, other in pairs):
            continue  # nothing says which of its values is meant
        if isinstance(value, list) and len(value) == 1 and not attributes[name].multiple:
            problems["wrapped_value"] += 1
            value = value[0]
        values[name] = _parsed(attributes[name], value, fields)
    problems["missing_key"] = len(attributes) - len(written)
    return FinalAnswer(values, +problems)


def _find_answer(schema: CategorySchema, text: str, is_cut: bool) -> Object | NoAnswer:
    if len(text) > _MAX_TEXT:
        return "too_long"
    spoken = after_reasoning(text)
    if spoken is None:
        return "thinking"
    spoken = read_string(spoken.strip())
    try:
        found = find_json(spoken)
    except ValueError:
        return "unclosed"
    if not found:
        return "none"
    if "{" in _outside(spoken, found):
        return "unclosed"  # an object that is not JSON stands around, or beside, what is
    if any(each.value != found[0].value for each in found):
        return "several"
    if _has_words(spoken[found[-1].end :]) or (is_cut and _has_words(spoken[: found[0].start])):
        return "words"
    return _unwrapped(schema, found[0])


def _outside(text: str, found: Sequence[Found]) -> str:
    starts = [each.start for each in found]
    return "".join(
        text[end:start] for end, start in zip([0, *(each.end for each in found)], [*starts, len(text)], strict=True)
    )


def _has_words(text: str) -> bool:
    return _WORD.search(_TAG.sub("", text)) is not None


def _unwrapped(schema: CategorySchema, found: Found) -> Object | NoAnswer:
    """Return the object of the attributes within {"product": {...}} or [{...}]."""
    objects = AnsweredObjects(schema.attributes, _spelling)
    spellings = {_spelling(attribute.name) for attribute in schema.attributes}
    value: Any = found.value
    for _ in range(_MAX_NESTED):
        if isinstance(value, Object):
            value = objects.by_name(value)
            if len(value) == 1 and not spellings & set(map(_spelling, value)):
                if value.disputed:
                    return "several"
                (value,) = value.values()
            else:
                break
        elif isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        else:
            break
    if isinstance(value, list) and len(value) > 1:
        return "several"
    return objects.by_name(value) if isinstance(value, Object) else "none"


def _is_template(written: Mapping[str, list[tuple[str, Any]]], fields: Mapping[str, str]) -> bool:
    """Return whether it only shows the form: {"Brand": "...", "Colour": "<colour>"}."""
    document = "\n".join(fields.values())
    shown = [(name, value) for name, pairs in written.items() for _, value in pairs if value is not None]
    return bool(shown) and all(
        isinstance(value, str)
        and value not in document
        and (_FILLED_IN.fullmatch(value.strip()) or _spelling(value) == _spelling(name))
        for name, value in shown
    )


def _parsed(attribute: Attribute, value: Any, fields: Mapping[str, str]) -> Value:
    written = json.dumps(value)
    if _DAMAGED in written and not any("\ufffd" in text for text in fields.values()):
        written = "{}"  # the endpoint lost a letter: no value of any attribute
    return parse_value(attribute, written, closed=True, fields=fields)


def _spelling(key: str) -> str:
    return " ".join(re.split(r"[\W_]+", key.casefold())).strip()


class _Pair(NamedTuple):
    name: str
    value: Any
    is_disputed: bool


class AnsweredObjects:
    """The objects of a category's schema."""

    def __init__(self, attributes: Iterable[Attribute], spelling: Callable[[str], str]) -> None:
        """Collect the objects. `spelling`: maps keys that count as equal to the same text."""
        self._spelling = spelling
        self._inside: defaultdict[str, list[str]] = defaultdict(list)
        for attribute in attributes:
            for depth in range(1, len(attribute.path)):
                self._inside[spelling(dotted(attribute.path[:depth]))].append(attribute.name)

    def by_name(self, answer: Object) -> Object:
        """Flatten the answer's objects to full names; unchanged if the schema has no objects."""
        if not self._inside:
            return answer
        pairs = list(self._pairs(answer, "", is_disputed=False))
        found = Object([(pair.name, pair.value) for pair in pairs])
        found.num_doubled += _num_doubled(answer)
        found.disputed |= {pair.name for pair in pairs if pair.is_disputed}
        return found

    def _pairs(self, answer: Object, outer: str, *, is_disputed: bool) -> Iterator[_Pair]:
        for key, value in answer.items():
            name = outer + key
            inside = self._inside.get(self._spelling(name))
            is_open = is_disputed or key in answer.disputed
            if inside is not None and isinstance(value, Object):
                yield from self._pairs(value, f"{name}.", is_disputed=is_open)
            elif inside is not None and value is None:
                yield from (_Pair(each, None, is_open) for each in inside)
            else:
                yield _Pair(name, value, is_open)


def _num_doubled(value: Any) -> int:
    return value.num_doubled + sum(map(_num_doubled, value.values())) if isinstance(value, Object) else 0


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


class Object(dict[str, Any]):
    """A JSON object that remembers duplicate keys.

    Attributes:
        num_doubled: number of repeated keys.
        disputed: keys that were written with different values; the first one is kept.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        for key, value in pairs:
            self.setdefault(key, value)
        self.num_doubled = len(pairs) - len(self)
        self.disputed = {key for key, value in pairs if value != self[key]} if self.num_doubled else set()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) is True and self.disputed == (
            other.disputed if isinstance(other, Object) else set()
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


class Found(NamedTuple):
    """An object or a list, and its span in the text."""

    value: Object | list[Any]
    start: int
    end: int


# Numbers stay as they were written: 1.50 is not 1.5, and one of 5,000 digits is no trouble. NaN fits no attribute.
_DECODER = json.JSONDecoder(
    object_pairs_hook=Object, parse_float=str, parse_int=str, parse_constant=lambda _: Object([]), strict=False
)


def after_reasoning(text: str) -> str | None:
    """Return the text after the last closed reasoning block; None if one is left open."""
    for closed in _CLOSED.finditer(text):
        spoken = text[closed.end() :]
        if not _CLOSED.search(spoken):
            return None if _OPENED.search(spoken) else spoken
    return None if _OPENED.search(text) else text


def find_json(text: str) -> list[Found]:
    """Find the outermost objects and lists of `text`, in order.

    Raises:
        ValueError: a value begins that is not JSON, or does not end.
    """
    found: list[Found] = []
    position = 0
    while (begin := _START.search(text, position)) is not None:
        try:
            value, position = _DECODER.raw_decode(text, begin.start())
        except RecursionError as error:
            raise ValueError("brackets are nested too deeply") from error
        found.append(Found(value, begin.start(), position))
    return found


def read_string(text: str) -> str:
    """Return the string that `text` encodes as JSON; `text` itself if it is no such string."""
    try:
        value = _DECODER.decode(text) if text.startswith('"') else text
    except ValueError:
        return text
    return value if isinstance(value, str) else text
