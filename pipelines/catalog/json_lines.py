"""Parsing of a JSONL line into its object, or the reason why there is none. Pure functions."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pipelines.catalog.cells import CellError, JsonNumber, described, kind_of, not_utf8, shortened, wide_encoding

logger = logging.getLogger(__name__)

_MARK = "\ufeff"
_BLANK = " \t\r\n"
_MISSING = {
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing",
    "Expecting value": "a value is missing",
    "Expecting property name enclosed in double quotes": 'a key in " is missing',
}
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """A JSONL line: its object, or why there is none. Numbers are `JsonNumber`; a repeated key is a `CellError`."""

    row: dict[str, Any] | None
    problem: str | None = None


def parse_line(line: bytes) -> ParsedLine:
    """Parse one JSONL line; a byte order mark before the object is skipped."""
    try:
        text = line.decode().removeprefix(_MARK)
        row = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        return ParsedLine(None, not_utf8(line, error))
    except json.JSONDecodeError as error:
        return ParsedLine(None, f"not JSON: {_diagnosis(text, error)}")
    except RecursionError:
        return ParsedLine(None, "not readable: nested too deeply")
    except MemoryError:
        raise  # of the process, not of the line
    except Exception as error:
        # Nobody knows of such a line. It is no reason for the others not to be read.
        logger.exception("a line could not be parsed")
        return ParsedLine(None, f"not readable: {described(error)}")
    if not isinstance(row, dict):
        return ParsedLine(None, f"a JSON object is needed, not {kind_of(row)}{_array_hint(text)}")
    return ParsedLine(row)


def parse_json(text: str) -> Any:
    """Parse a cell that holds JSON, with numbers as in a line; return None if it is not JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        doubled = CellError("doubled_column", "it stands twice in the line; leave one of the two")
        row |= {key: doubled for key, count in counts.items() if count > 1}
    return row


# Any number of digits is read: Python's int refuses more than 4,300, and a float would round them.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=JsonNumber, parse_float=JsonNumber)


def _diagnosis(text: str, error: json.JSONDecodeError) -> str:
    """Return what is wrong, in plain words, and where."""
    place = f"at character {error.pos}"
    rest, before = text[error.pos :].lstrip(_BLANK + _MARK), text[: error.pos].rstrip()
    if not text.strip("\0" + _BLANK + _MARK):
        return "nothing but NUL bytes; the file is damaged" if "\0" in text else "nothing stands in the line"
    if text.count("\0") * 4 >= len(text):
        return f"it holds NUL bytes {place}; it looks like {wide_encoding(text.encode())}"
    if text.lstrip().startswith(("//", "/*", "#")):
        return "a comment; JSON has none, leave the line out"
    if text.strip() in ("{", "}", "},", "[", "]", "[{", "}]"):
        return f"{text.strip()} alone; one whole object a line is needed"
    if error.msg == "Extra data":
        return _extra(rest, place)
    if error.msg.startswith("Unterminated string") or not rest:
        return f"it is cut off after {len(text.rstrip()):,} characters: its end is missing"
    if error.msg.startswith("Invalid control character"):
        return f"a control character (U+{ord(text[error.pos]):04X}) stands in a text {place}; write it as an escape"
    if error.msg.startswith("Invalid \\"):
        return f"a backslash {place} begins no escape; write it twice"
    if rest[0] in "}]" and before.endswith(","):
        return f"a comma at character {len(before) - 1} has nothing behind it"
    if rest[0] == "," and rest[1:].lstrip(_BLANK)[:1] in ("}", "]"):
        return f"a comma {place} has nothing behind it"
    if rest[0] in "'‘’“”«»":
        return f'the quote {rest[0]} {place}; JSON wants "'
    if word := _WORD.match(rest):
        return f'{shortened(word[0])} {place} is no JSON; texts stand in ", and there are true, false and null'
    return f"{_MISSING.get(error.msg, error.msg)} {place}, where {shortened(rest)!r} stands"


def _extra(rest: str, place: str) -> str:
    """Return what is wrong with `rest`, which follows the first value of the line."""
    if rest.startswith(":"):
        return "a part of an object that goes over several lines; one whole object a line is needed"
    if rest.startswith("{"):
        return f"a second object {place}; one a line is needed"
    if rest.strip(_BLANK) in (",", "]", ",]"):
        return f"{rest.strip()} behind the object; JSON Lines has neither commas nor brackets between objects"
    return f"{shortened(rest.rstrip(_BLANK))!r} stands behind the end {place}"


def _array_hint(text: str) -> str:
    return "; write its objects a line each" if text.lstrip().startswith("[") else ""
