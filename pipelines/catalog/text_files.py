"""Text files as lines: unpacked, decoded by the encoding that is found, and split. Memory use is constant.

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
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa

from pipelines.catalog.cells import CellError, JsonNumber, kind_of, not_utf8
from pipelines.catalog.file_kinds import text_encoding
from pipelines.errors import UsageError

HEAD_CHARS = 2**18
"""Number of characters inspected to find a text's dialect."""
HEAD_BYTES = 2**16
"""Number of bytes inspected to find its encoding."""
MAX_LINE = 2**22
"""Maximum characters of a line; a longer line is cut, and no reader accepts the rest."""

_CHUNK = 2**20
_PACKED = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", lambda file: _by_arrow(file, "zstd")),
    (b"\x04\x22\x4d\x18", lambda file: _by_arrow(file, "lz4")),
)


def _by_arrow(file: Any, codec: str) -> BinaryIO:
    # Arrow's own stream does not iterate over lines.
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec), _CHUNK)


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


class NotUtf8Error(UsageError):
    """A file in an encoding that it does not declare."""


def find_encoding(head: bytes, named: str | None) -> str:
    """Return a text's encoding: what its first bytes say, else the named one, else UTF-8."""
    found = text_encoding(head)
    if found is None and named is not None and _is_utf8(head, named):
        found = "utf-8"
    return found or named or "utf-8"


def decoded(file: BinaryIO, encoding: str, name: str, head: bytes = b"", *, is_named: bool = True) -> Iterator[str]:
    """Yield the text in chunks, without a byte order mark. `head`: bytes read before.

    Raises `UsageError` with the line of a byte that is no text in this encoding; `NotUtf8Error` unless it was named.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    is_first, line = True, 1
    try:
        while data := head or bytes(file.read(_CHUNK)):
            text, head = decoder.decode(data), b""
            line += text.count("\n")
            if is_first and text:
                text, is_first = text.removeprefix("\ufeff"), False
            yield text
        yield decoder.decode(b"", final=True)
    except UnicodeError as error:
        why = str(error)
        if isinstance(error, UnicodeDecodeError):
            line += error.object[: error.start].decode(encoding, "replace").count("\n")
            shown = error.object[max(0, error.start - 20) : error.end + 20]
            why = f"byte 0x{error.object[error.start]:02x} is no text in it: {shown!r}"
        raise (UsageError if is_named else NotUtf8Error)(
            f"{name}, line {line:,}: the file is not {encoding}: {why}. A file is read in one encoding: name another "
            "one, as input.encoding: cp1252 (Windows), latin-1 or utf-16-le, or write the file as UTF-8"
        ) from error


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


_BYTE_ORDER_MARK = "\ufeff"


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
        is_cut = error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
        problem = "it is cut off: its end is missing" if is_cut else f"{error.msg} at character {error.pos}"
        return ParsedLine(None, f"not JSON: {problem}")
    except RecursionError:
        return ParsedLine(None, "not readable: nested too deeply")
    if not isinstance(row, dict):
        return ParsedLine(None, f"a JSON object is needed, not {kind_of(row)}")
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
