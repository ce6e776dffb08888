"""Parser of JSON in a model's text, and of the text after its reasoning.

Only strict JSON is read. Nearly valid or truncated JSON is not a value: the model is asked again.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

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
