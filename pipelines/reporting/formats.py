"""Formats of numbers and texts for readers.

Catalog strings are always data: escaped, with every steering character (controls, bidirectional overrides, invisible
tags) shown.
"""

from __future__ import annotations

import math
import re
from typing import TypeVar

from markupsafe import Markup, escape

from pipelines.console.terminal import dollars, three_digits

NONE = "–"

# Joiners stay: emoji and several scripts are written with them. So do tab, newline and carriage return.
_STEERING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# Those that mean something anywhere, or at the start of a line.
# GitHub's Markdown makes links of bare addresses, escaped or not: an empty comment parts them, and shows nowhere.
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=@)", re.IGNORECASE)
_MARKDOWN = re.compile(r"[\\`*_\[\]|~>]|^[#+\-=]|^\d+(?=[.)](?:\s|$))")


def show(text: str) -> Markup:
    """Escape text for HTML text, never for an attribute. Steering characters become small labels."""
    if isinstance(text, Markup):
        return text
    parts, end = [], 0
    for match in _STEERING.finditer(text):
        parts += [escape(text[end : match.start()]), Markup('<span class="ctl">{}</span>').format(_code(match))]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def plain(text: str) -> str:
    """Remove steering characters and line breaks, for a title, an option or a terminal."""
    return " ".join(_STEERING.sub("\ufffd", text).split())


Text = TypeVar("Text", str, str | None)


def shortened(text: Text, limit: int) -> Text:
    """Cut the text to at most `limit` characters, with an ellipsis if it was longer."""
    return text if text is None or len(text) <= limit else f"{text[:limit]}…"


def leaf(place: str) -> str:
    """Return the last part of a path, or of a hub id."""
    return place.rstrip("/").rsplit("/", 1)[-1]


def markdown(text: str) -> str:
    """Escape text for Markdown, on one line, with no address turned into a link."""
    coded = " ".join(_STEERING.sub(_code, text).split())
    return _ADDRESS.sub("<!-- -->", _MARKDOWN.sub(_backslashed, coded.replace("&", "&amp;").replace("<", "&lt;")))


def _backslashed(match: re.Match[str]) -> str:
    return f"{match.group()}\\" if match.group().isdigit() else f"\\{match.group()}"


def _code(match: re.Match[str]) -> str:
    return f"U+{ord(match.group()):04X}"


def usd(value: float | None) -> str:
    """Format dollars, as everywhere."""
    return NONE if value is None else dollars(value)


def hours(seconds: float | None) -> str:
    """Format seconds as hours, or as minutes or seconds if that reads better."""
    if seconds is None:
        return NONE
    if seconds >= 3600:
        whole = seconds >= 360_000 or seconds % 3600 == 0
        return f"{seconds / 3600:,.0f} h" if whole else f"{seconds / 3600:,.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{three_digits(seconds)} s"


def number(value: float | None) -> str:
    """Format a count in full, anything else with three significant digits."""
    if value is None:
        return NONE
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else three_digits(value)


def share(value: float | None) -> str:
    """Format a part of a whole. "100%" and "0%" appear only if exact."""
    if value is None:
        return NONE
    if 0 < value < 0.001:
        return "<0.1%"
    if math.isclose(value, 1):
        return "100%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return "0%" if value == 0 else f"{value:.1%}"


def rate(value: float | None) -> str:
    """Format a score in [0, 1]."""
    return NONE if value is None else f"{value:.3f}"


def probability(value: float | None) -> str:
    """Format a probability, if only its size matters."""
    if value is None:
        return NONE
    return "<0.01" if value < 0.005 else f"{value:.2f}"


def size(num_bytes: float | None) -> str:
    """Format a number of bytes."""
    if num_bytes is None:
        return NONE
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:,.0f} {unit}" if unit == "bytes" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} TiB"
