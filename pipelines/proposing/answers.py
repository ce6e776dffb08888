"""Parser of attributes in a model's answer: XML elements as requested, or JSON; malformed answers are tolerated."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipelines.labelling.json_in_text import after_reasoning, find_json

_ELEMENT = re.compile(r"<attribute\b[^>]*>(.*?)(?=</attribute\s*>|<attribute\b|\Z)", re.DOTALL | re.IGNORECASE)
_LAST = re.compile(r"<attribute\b(?!.*</?attribute\b).*\Z", re.DOTALL | re.IGNORECASE)  # that is not closed
_PART = re.compile(r"<(\w+)\b[^>]*>\s*(.*?)\s*(?:</\s*\1\s*>|(?=<\w+\b)|\Z)", re.DOTALL | re.IGNORECASE)
_DECORATION = re.compile(r"[`*_\"'\s]*(.*?)[`*_\"'\s:.]*", re.DOTALL)
_SPLIT = re.compile(r"\s*[|;\n]\s*")
_NUMERICAL = re.compile(r"numer|number|integer|float|decimal|quanti", re.IGNORECASE)
_NO_UNIT = frozenset({"", "-", "n/a", "na", "none", "null", "unitless", "no unit", "count"})
_PRICE = re.compile(r"\bprice|\bcost\b", re.IGNORECASE)
_MAX_NAME, _MAX_DESCRIPTION, _MAX_VALUE = 60, 300, 60
_MAX_VALUES = 24


@dataclass(frozen=True, slots=True)
class Named:
    """Attribute that a model named."""

    name: str
    description: str | None
    is_number: bool
    unit: str | None
    values: tuple[str, ...]


def read_attributes(text: str, *, is_cut: bool = False) -> list[Named]:
    """Parse the attributes in an answer, in its order, each name once; [] if there are none.

    `is_cut`: whether the answer was cut at its limit, so that its last, unclosed attribute is dropped.
    """
    spoken = after_reasoning(text)
    if spoken is None:
        return []
    if is_cut and (last := _LAST.search(spoken)):
        spoken = spoken[: last.start()]
    parts: list[Mapping[str, Any]] = [*_elements(spoken)] or [*_objects(spoken)]
    found: dict[str, Named] = {}
    for each in filter(None, map(_named, parts)):
        found.setdefault(each.name.casefold(), each)
    return list(found.values())


def _elements(text: str) -> Iterator[dict[str, str]]:
    for match in _ELEMENT.finditer(text):
        yield {name.casefold(): html.unescape(content) for name, content in _PART.findall(match[1])}


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield objects with a name at any depth: {"attributes": [{"name": ...}]}, {"Colour": {"description": ...}}."""
    with suppress(ValueError):  # what is cut, or not JSON, names nothing
        for found in find_json(text):
            yield from _named_objects(found.value)


def _named_objects(value: Any, key: str = "") -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _named_objects(item)
    elif isinstance(value, Mapping):
        folded = {str(name).casefold(): inner for name, inner in value.items()}
        if isinstance(folded.get("name"), str):
            yield folded
        elif key and folded.keys() & {"description", "datatype", "type"}:
            yield {**folded, "name": key}
        else:
            for name, inner in value.items():
                yield from _named_objects(inner, str(name))


def _named(parts: Mapping[str, Any]) -> Named | None:
    name = _plain(parts.get("name"))
    if not name or len(name) > _MAX_NAME or not name.isprintable() or _PRICE.search(name):
        return None
    description = _plain(parts.get("description"))
    unit = _plain(parts.get("unit"))
    is_number = bool(_NUMERICAL.search(str(parts.get("datatype") or parts.get("type") or "")))
    values = parts.get("values") or ()
    listed = [str(each) for each in values] if isinstance(values, list) else _SPLIT.split(str(values) if values else "")
    members = dict.fromkeys(each for each in map(_plain, listed) if each and len(each) <= _MAX_VALUE)
    return Named(
        name,
        description[:_MAX_DESCRIPTION] or None,
        is_number,
        unit if is_number and unit.casefold() not in _NO_UNIT and len(unit) <= _MAX_NAME else None,
        tuple(members)[:_MAX_VALUES],
    )


def _plain(text: Any) -> str:
    """Strip line breaks and surrounding decoration (quotes, asterisks) from a text; "" if it is not a text."""
    match = _DECORATION.fullmatch(" ".join(str(text).split())) if isinstance(text, str) else None
    return match[1] if match else ""
