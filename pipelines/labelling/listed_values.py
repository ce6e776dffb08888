"""Splitting of one text into several values ("S, M, L") for attributes that are lists.

A text is split only if every part is an enum's member or stands in the product text by itself. So "1,5" and "Apple,
Inc." stay whole. Possible names ("Black & Decker", "AC/DC", "S and M") are split only if every part also stands
elsewhere in the text. Any other text with separators is a problem and not a label.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text.values import parse_value
from pipelines.quality.scoring import fold, words_pattern

_SPACES = re.compile(r"[^\S\n]+")
# A comma between digits belongs to a number, and so does a slash.
_SEPARATOR = re.compile(r"\s*(?:[;；|•·\n、]|[,，،](?!\d)|(?<!\d)[,，،]|\s/\s)\s*")
# What joins two values, or the words of one name; letters that stand alone are no words.
_JOINER = re.compile(
    rf"{_SEPARATOR.pattern}|(?<!\d)[/／](?!\d)|\s+(?:[&＆+]|and|or|und|oder|et|ou|y|och|og)\s+"
    r"|(?<=\b[^\W\d_])\s+(?=[^\W\d_]\b)"
)
# The parts of a list are not all of it, or not parts.
_JOINED = re.compile(r"&|\+|\b(?:and|or|more|etc|und|oder|mehr|usw|et|ou|plus|y|o|e|och|og|en|i)\b", re.IGNORECASE)
_NAME_ENDS = frozenset({"inc", "ltd", "llc", "co", "corp", "gmbh", "ag", "plc", "sa", "jr", "sr"})


def split_lists(
    schema: CategorySchema, values: Mapping[str, Value], fields: Mapping[str, str]
) -> tuple[dict[str, Value], Counter[str]]:
    """Split the list texts of a product's answer into values. Those that cannot be split are left out and counted."""
    split, problems = dict(values), Counter[str]()
    for attribute in schema.attributes:
        value = values.get(attribute.name)
        if value is None or not attribute.multiple or value.status not in ("value", "invalid"):
            continue
        text, is_listed = _only_text(value)
        ways = [(_parts(attribute, text, _SEPARATOR), "")]
        if not is_listed or attribute.type == "enum":  # within a list, "S and M" is one value
            ways.append((_parts(attribute, text, _JOINER), text))
        ways = [way for way in ways if len(way[0]) > 1]
        several = next(filter(None, (_several(attribute, parts, fields, whole) for parts, whole in ways)), None)
        if several is not None:
            split[attribute.name] = several
        elif ways and value.status == "value" and not is_listed and attribute.is_text:
            del split[attribute.name]
            problems["list_as_text"] += 1
    return split, problems


def _only_text(value: Value) -> tuple[str, bool]:
    """Return the single text of an answer, and whether it is in a list; "" if it is anything else."""
    try:
        answer: Any = json.JSONDecoder(strict=False).raw_decode(value.raw.strip())[0]
    except (ValueError, RecursionError):
        return "", False
    is_listed = isinstance(answer, list)
    if is_listed and len(answer) == 1:
        answer = answer[0]
    return (answer if isinstance(answer, str) else ""), is_listed


def _parts(attribute: Attribute, text: str, separator: re.Pattern[str]) -> list[str]:
    if text in attribute.vocabulary.spellings:
        return [text]
    parts = [part for part in separator.split(_SPACES.sub(" ", text.strip())) if part]
    return [text] if any(fold(part.replace(".", "")) in _NAME_ENDS for part in parts) else parts


def _several(attribute: Attribute, parts: list[str], fields: Mapping[str, str], whole: str) -> Value | None:
    """Return the parts as values if each is a member or stands in the text, outside `whole` if given; else None."""
    several = parse_value(attribute, json.dumps(parts), closed=True, fields=fields)
    if several.status != "value" or attribute.type == "enum":
        return several if several.status == "value" else None
    text = fold("\n".join(fields.values()))
    if whole:
        text = text.replace(fold(whole), "\n")
    is_apart = all(not _JOINED.search(part) and words_pattern([fold(part)]).search(text) for part in parts)
    return several if is_apart else None
