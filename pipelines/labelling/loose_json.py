"""JSON values in a text that a model wrote: found between words, read as JSON or as what is nearly JSON.

Nearly JSON is what can be told for sure: Python's quotes and words, comments, a comma too many, keys without quotes,
typographic signs, and quotes within a text that lack their backslash. A value that was cut is never completed, for what
was cut off would be silently missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_MAX_DEPTH = 50  # brackets within brackets: more mean nothing, and thousands exhaust the stack
_MAX_VALUES = 1000  # that are tried in one text, so that an answer full of braces costs no minutes
_MAX_LOOSE = 200_000  # characters of what is nearly JSON, which takes long to read

# An object or list begins here: a brace in prose has no quote or key behind it.
_START = re.compile(r"""\{(?=\s*+(?:["'“”„}]|//|/\*|\#|[^\W\d]\w*+\s*+[:：]))|\[(?=\s*+[{\[])""")
_ENDS_TEXT = r"\s*+(?:[,:}\]，：]|//|/\*|\#)"  # what stands behind a quote that ends a text, not one within it
_STEP = re.compile(rf"""\\.|["'“”„](?=(?P<end>{_ENDS_TEXT})?)|[{{}}\[\]:,：，]""", re.DOTALL)
_QUOTES = {'"': '"', "'": "'"} | dict.fromkeys("“”„", "“”„")  # what ends a text that a quote begins
_MAX_SPACE = 200  # characters between a sign and the quote behind it
_TOKEN = re.compile(
    rf"""(?P<space>\s++|//[^\n]*+|/\*.*?\*/|\#[^\n]*+)
    |(?P<text>"(?:[^"\\]++|\\.|"(?!{_ENDS_TEXT}))*+"|'(?:[^'\\]++|\\.|'(?!{_ENDS_TEXT}))*+'|[“”„][^“”„]*+[“”])
    |(?P<number>[-+.]?\d[\w.+-]*+)
    |(?P<word>-?[^\W\d]\w*+)
    |(?P<mark>[{{}}\[\]:,：，])""",
    re.DOTALL | re.VERBOSE,
)
_PART_OF_TEXT = re.compile(r"""\"|\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|')?""")
_WORDS = {"True": "true", "False": "false", "None": "null", "undefined": "null", "：": ":", "，": ","}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Object(dict[str, Any]):
    """A JSON object that remembers which keys were written twice.

    Attributes:
        num_doubled: how often a key was written that was there.
        disputed: keys that were written with different values, of which the first one is held.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        for key, value in pairs:
            self.setdefault(key, value)
        self.num_doubled = len(pairs) - len(self)
        self.disputed = {key for key, value in pairs if value != self[key]} if self.num_doubled else set()


class NotANumber:
    """What `NaN` and `Infinity` are read as: they fit no attribute."""


class Found(NamedTuple):
    """A value and where it stands in the text; `value` is None where one begins that never ends."""

    value: Object | list[Any] | None
    start: int
    end: int


# Numbers stay as they were written: 1.50 is not 1.5, and one of 5,000 digits is no trouble.
_DECODER = json.JSONDecoder(
    object_pairs_hook=Object, parse_float=str, parse_int=str, parse_constant=lambda _: NotANumber(), strict=False
)


def find_values(text: str) -> Iterator[Found]:
    """The objects and lists of `text`, outermost ones, in their order; what is neither JSON nor nearly so is skipped.

    The last one has no value if it is not closed, for nothing inside of it stands for itself, or if there are too many.
    """
    position = 0
    for _ in range(_MAX_VALUES):
        begin = _START.search(text, position)
        if begin is None:
            return
        position, depth = _extent(text, begin.start())
        if position < 0:
            yield Found(None, begin.start(), len(text))
            return
        value = read_value(text[begin.start() : position]) if depth <= _MAX_DEPTH else None
        if isinstance(value, Object | list):
            yield Found(value, begin.start(), position)
    yield Found(None, position, len(text))


def read_value(text: str) -> Any:
    """The one value that `text` is; None where it is none, or null."""
    for written in (str, _as_json) if len(text) <= _MAX_LOOSE else (str,):
        try:
            return _DECODER.decode(written(text))
        except (ValueError, RecursionError):
            continue
    return None


def _extent(text: str, start: int) -> tuple[int, int]:
    """Where the bracket at `start` is closed, -1 if it is not, and how deep it is nested."""
    depth = deepest = behind = 0
    closing = ""  # within a text: what ends it
    for found in _STEP.finditer(text, start):
        sign = found.group()
        if closing:
            closing = "" if sign in closing and found["end"] is not None else closing
        elif sign in _QUOTES:
            # An apostrophe within something else begins no text.
            space = text[behind : found.start()] if found.start() - behind <= _MAX_SPACE else "much"
            closing = _QUOTES[sign] if sign == '"' or not space.strip() else ""
        elif sign in "{[":
            depth, behind = depth + 1, found.end()
            deepest = max(deepest, depth)
        elif sign in "}]":
            depth -= 1
            if not depth:
                return found.end(), deepest
        else:
            behind = found.end()
    return -1, deepest


def _as_json(text: str) -> str:
    """`text` as JSON, if it is nearly that. Raises `ValueError` if a character belongs to nothing."""
    written: list[str] = []
    position, is_behind_comma = 0, False
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"nothing that JSON knows at {position}")
        position, kind, part = token.end(), token.lastgroup, token.group()
        if kind == "space":
            continue
        if is_behind_comma and part in ("}", "]"):
            written.pop()
        written.append(_as_json_token(kind or "", part))
        is_behind_comma = written[-1] == ","
    return " ".join(
        json.dumps(part) if follower == ":" and part.isidentifier() else part
        for part, follower in zip(written, [*written[1:], ""], strict=True)
    )


def _as_json_token(kind: str, part: str) -> str:
    if kind == "text":
        return '"' + _PART_OF_TEXT.sub(_as_json_part, part[1:-1]) + '"'
    if kind == "number":
        return part if _NUMBER.fullmatch(part) else json.dumps(part)
    return _WORDS.get(part, part)


def _as_json_part(found: re.Match[str]) -> str:
    """A quote that needs a backslash in JSON, or a backslash that does not or that belongs to the text: L\\XL."""
    part = found.group()
    if part == '"':
        return '\\"'
    if part == "\\'":
        return "'"
    return part if found[1] else "\\" + part
