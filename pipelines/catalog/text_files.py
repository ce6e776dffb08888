"""Text files as lines: unpacked, decoded and split. Memory use is constant, however large the file is.

Undecodable bytes do not stop reading. Each becomes a mark (half a surrogate pair, which valid text never holds), so
the row around it can be refused with its text.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from pipelines.catalog.text_telling import text_encoding
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
