"""Text files as lines: unpacked, decoded and split. Memory use is constant, however large the file is.

Undecodable bytes do not stop reading. Each becomes a mark (half a surrogate pair, which valid text never holds), so
the row around it can be refused with its text.

A file has one encoding. A file that begins in UTF-8 is read as such, whatever encoding is named. A row of UTF-8 in a
file of another encoding ("GrÃ¶ÃŸe") is refused.
"""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import io
import json
import logging
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa

from pipelines.catalog.cells import CellError, JsonNumber, described, kind_of, not_utf8, shortened, wide_encoding
from pipelines.catalog.file_kinds import text_encoding
from pipelines.errors import UsageError

HEAD_CHARS = 2**18
"""Number of characters inspected to find a text's dialect."""
HEAD_BYTES = 2**16
"""Number of bytes inspected to find its encoding."""
MAX_LINE = 2**22
"""Maximum characters of a line; a longer line is cut, and no reader accepts the rest."""

_CHUNK = 2**20
_MARKS = re.compile("[\udc00-\udcff]+")
_MARK = 0xDC00
_ERRORS = "hpd-mark"
_PACKED = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", lambda file: pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")),
    (b"\x04\x22\x4d\x18", lambda file: pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "lz4")),
)


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(_MARK + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_ERRORS, _mark)


@contextmanager
def open_unpacked(filesystem: Any, path: str, name: str) -> Iterator[BinaryIO]:
    """Open the file's bytes, unpacked if its first bytes say that it is packed. Raise `UsageError` if it is damaged."""
    with filesystem.open(path, "rb", block_size=4 * _CHUNK) as file:
        magic = file.read(8)
        file.seek(0)
        unpack = next((opened for beginning, opened in _PACKED if magic.startswith(beginning)), None)
        if unpack is None:
            yield file
            return
        try:
            yield cast(BinaryIO, unpack(file))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, pa.ArrowException) as error:
            raise UsageError(f"{name} is cut off or damaged ({error}): copy or write it again") from error
        except OSError as error:
            if error.errno is None:  # the data's fault, as bz2 and Arrow tell it
                raise UsageError(f"{name} is cut off or damaged ({error}): copy or write it again") from error
            raise


def find_encoding(head: bytes, named: str | None) -> tuple[str, bool]:
    """Return a text's encoding, and whether it is certain (detected or named). The fallback is UTF-8."""
    found = text_encoding(head)
    if found is None and named is not None and _is_utf8(head, named):
        found = "utf-8"
    if found is not None:
        return found, True
    return (named or "utf-8"), named is not None


def decoded(file: BinaryIO, encoding: str, head: bytes = b"") -> Iterator[str]:
    """Yield the text in chunks, without a byte order mark; undecodable bytes are marked. `head`: bytes read before."""
    decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
    is_first = True
    while data := head or bytes(file.read(_CHUNK)):
        text, head = decoder.decode(data), b""
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        yield text
    yield decoder.decode(b"", final=True)


def split_lines(chunks: Iterator[str]) -> Iterator[str]:
    """Yield lines with their ends (LF, CRLF or CR), as the csv module needs them."""
    rest = ""
    for chunk in chunks:
        if not chunk:
            continue
        *lines, last = io.StringIO(rest + chunk, newline="")
        yield from lines
        # Whether the last one ends here is not known: more may come, a line feed behind a CR too.
        is_whole = last.endswith("\n") or len(last) > MAX_LINE
        rest = "" if is_whole else last
        if is_whole:
            yield last
    yield from io.StringIO(rest, newline="")


def is_marked(text: str) -> bool:
    """Return whether bytes of the text could not be decoded."""
    return not text.isascii() and _MARKS.search(text) is not None


def marked_bytes(text: str) -> bytes:
    """Return the first run of bytes that could not be decoded."""
    found = _MARKS.search(text)
    return bytes(ord(each) - _MARK for each in found[0]) if found else b""


def readable(text: str) -> str:
    """Return the text in a form that a file can hold, with marked bytes as escapes."""
    return _MARKS.sub(lambda found: "".join(f"\\x{ord(each) - _MARK:02x}" for each in found[0]), text)


logger = logging.getLogger(__name__)

_BYTE_ORDER_MARK = "\ufeff"
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
        text = line.decode().removeprefix(_BYTE_ORDER_MARK)
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
    rest, before = text[error.pos :].lstrip(_BLANK + _BYTE_ORDER_MARK), text[: error.pos].rstrip()
    if not text.strip("\0" + _BLANK + _BYTE_ORDER_MARK):
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


_EUROPEAN = re.compile("[\0-\u017f\u2000-\u22ff]*")
# É® in NESCAFÉ®, read as UTF-8, is one letter that hardly any text has: such letters are no sign of UTF-8.
_LETTERS = re.compile("[\x80-\u017f\u0370-\u052f\u05d0-\u05ea\u0620-\u064a\u0900-\U0010ffff]")
# Where a letter takes two bytes, as in GBK, those of many are a letter of two bytes in UTF-8, too.
_LONG_LETTERS = re.compile("[\u0900-\U0010ffff]")


def _is_utf8(head: bytes, named: str) -> bool:
    """Return whether a file begins in UTF-8 and not in the `named` encoding. ASCII counts as what is named."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    if b"a,b\n12".decode(named, "replace") != "a,b\n12":
        return "\0" not in text  # UTF-16 and UTF-32 have zeros, and EBCDIC is no UTF-8
    return (_LETTERS if has_one_byte_letters(named) else _LONG_LETTERS).search(text) is not None


@functools.cache
def has_one_byte_letters(encoding: str) -> bool:
    """Return whether each byte is a letter of its own."""
    return len("é".encode().decode(encoding, "replace")) == 2


def is_misread_utf8(text: str, encoding: str) -> bool:
    """Return whether text that was read in an encoding of one byte a letter is UTF-8 of European letters."""
    if text.isascii():
        return False
    try:
        read_again = text.encode(encoding, "surrogateescape").decode()
    except UnicodeError:
        return False
    return read_again != text and _EUROPEAN.fullmatch(read_again) is not None
