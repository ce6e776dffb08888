"""Conversion of one catalog cell to text, an id or a category. Pure functions.

A cell holds what JSON or Arrow decoded. Digits are never changed: a JSON number stays as written and a decimal keeps
all its places. A float becomes its whole number, or else the shortest decimal equal to it.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from typing import Any

from hpd_core.types import is_encodable

EXACT_DOUBLES = 2**53
"""Limit from which neighbouring whole numbers share one double."""
_WANTED = "text, a number or a list of them is needed"
_ID_WANTED = "text or a whole number is needed"
_WHOLE = re.compile(r"(-?\d+)(\.0+)?")
# Bytes with others of the control characters than tab and line ends are no text, though they may be UTF-8.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class JsonNumber(str):
    """A number as written in a JSON line, with any number of digits."""

    __slots__ = ()


class CellError(ValueError):
    """A cell that cannot be read. A reader stores it in place of the cell; reading a value from the cell raises it.

    Attributes:
        code: error code, for counting.
        reason: message for a person.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def cell_text(value: Any, separator: str) -> str:
    """Return the text of a cell: lists are joined, null and NaN are "". Raise `CellError` if it has no plain text."""
    if type(value) is str:
        text = value
    elif isinstance(value, list):
        items = [item if type(item) is str else _item_text(item) for item in value]
        text = separator.join(item for item in items if item)
    else:
        text = _plain_text(value)
    if not text.isascii() and not is_encodable(text):
        raise CellError("wrong_type", "it holds half a surrogate pair, which is no text")
    return text


def field_text(value: Any, separator: str) -> str | None:
    """Return `cell_text`, or None if the cell has no plain text."""
    try:
        return cell_text(value, separator)
    except CellError:
        return None


def cell_id(value: Any) -> str:
    """Return the id in a cell, "" if empty. Raise `CellError` if it is neither text nor a whole number."""
    if type(value) is str:
        return cell_text(value, "")
    if isinstance(value, (JsonNumber, decimal.Decimal, float)) and not _is_nan(value):
        return _whole_number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, bytes, uuid.UUID, CellError, type(None))):
        raise CellError("wrong_type", f"{_ID_WANTED}, not {kind_of(value)}")
    return cell_text(value, "")


def _whole_number(value: JsonNumber | decimal.Decimal | float) -> str:
    text = format(value, "f") if isinstance(value, decimal.Decimal) else str(value)
    whole = _WHOLE.fullmatch(text)
    is_rounded = not isinstance(value, decimal.Decimal) and "." in text and abs(float(text)) >= EXACT_DOUBLES
    if whole is None or is_rounded:
        raise CellError(
            "wrong_type",
            f"{_ID_WANTED}, not the number {shortened(text)}, whose digits are not an exact id; store ids as text",
        )
    return whole[1]


def cell_category(value: Any) -> str:
    """Return the category in a cell, "" if empty. Raise `CellError` if it is not text."""
    if type(value) is str:
        return cell_text(value, "")
    if value is None or _is_nan(value):
        return ""
    if not isinstance(value, (bytes, CellError)):
        raise CellError("wrong_type", f"text is needed, not {kind_of(value)}; write it as text")
    return cell_text(value, "")


def kind_of(value: Any) -> str:
    """Return the kind of value in a cell, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", bytes: "bytes"}
    if isinstance(value, (int, float, decimal.Decimal, JsonNumber)) and not isinstance(value, bool):
        return "a number"
    if isinstance(value, (datetime.date, datetime.time)):
        return "a date or time"
    if isinstance(value, datetime.timedelta):
        return "a duration"
    return names.get(type(value), "null" if value is None else f"a {type(value).__name__}")


def shortened(text: str, longest: int = 40) -> str:
    """Return catalog text shortened for a message, with unpaired surrogates escaped."""
    shown = text if len(text) <= longest else f"{text[:longest]}... ({len(text):,} characters)"
    return shown.encode(errors="backslashreplace").decode()


def described(error: Exception) -> str:
    """Return a message for an unexpected error."""
    return f"{type(error).__name__}: {shortened(str(error), 200)}"


def _item_text(item: Any) -> str:
    if isinstance(item, list):
        raise CellError("wrong_type", f"{_WANTED}, not a list of lists; join the inner ones into text")
    return _plain_text(item)


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bytes):
        return _bytes_text(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, CellError):
        raise value
    raise CellError("wrong_type", f"{_WANTED}, not {kind_of(value)}; write it as text")


def _float_text(value: float) -> str:
    if math.isnan(value):
        return ""
    if math.isinf(value):
        raise CellError("wrong_type", f"{_WANTED}, and infinity is none")
    return str(int(value)) if value.is_integer() and abs(value) < EXACT_DOUBLES else repr(value)


def _bytes_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise CellError("unreadable", not_utf8(value, error)) from None
    if found := _CONTROL.search(text):
        raise CellError(
            "unreadable", f"its bytes are no text: byte {found[0].encode()[0]:#04x} stands among them; store it as text"
        )
    return text


def not_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """Return why `data` is not UTF-8, and its likely encoding."""
    why, zeros = f"not UTF-8: {error.reason} at byte {error.start}", data.count(0)
    if zeros * 4 >= len(data) or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{why}; it looks like {wide_encoding(data)}"
    if data[error.start] == 0xED and error.start + 1 < len(data) and data[error.start + 1] >= 0xA0:
        return f"{why}, which is half a surrogate pair"
    if error.end == len(data) and error.reason == "unexpected end of data":
        return f"{why}; its last character is cut off"
    if not data[: error.start].isascii():
        return f"{why}; what is before is UTF-8, so a character was cut or damaged"
    if zeros == 0:
        return f"{why}; it looks like Windows-1252 or Latin-1: iconv -f WINDOWS-1252 -t UTF-8"
    return why


def wide_encoding(data: bytes) -> str:
    """Return the probable encoding of text with many NUL bytes, and the command that converts it."""
    name = "UTF-32" if data.count(0) * 2 > len(data) + 2 else "UTF-16"
    return f"{name}: iconv -f {name} -t UTF-8"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
