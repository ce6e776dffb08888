"""Text files as lines: unpacked, decoded, cut where a line ends. Flat memory, however large the file is.

What cannot be decoded is no reason to stop: each such byte becomes a mark (half a surrogate pair, which no text holds),
so that the row around it can be refused with its text.
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
"""So much of a text is looked at to find out how it is written."""
HEAD_BYTES = 2**16
"""And of its bytes, to find out its encoding."""
MAX_LINE = 2**22
"""Characters; a longer line is cut, and no reader takes what is left."""

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
    """The file's bytes, unpacked if its first ones say that it is packed. Raises `UsageError` if it is damaged."""
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
    """A text's encoding, and whether that is certain: told by its first bytes, or named. Else it is UTF-8, perhaps."""
    found = text_encoding(head)
    if found is not None:
        return found, True
    return (named or "utf-8"), named is not None


def decoded(file: BinaryIO, encoding: str, head: bytes = b"") -> Iterator[str]:
    """The text in chunks, without a byte order mark; undecodable bytes are marked. `head`: read before."""
    decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
    is_first = True
    while data := head or bytes(file.read(_CHUNK)):
        text, head = decoder.decode(data), b""
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        yield text
    yield decoder.decode(b"", final=True)


def split_lines(chunks: Iterator[str]) -> Iterator[str]:
    """Lines with their ends, which are LF, CRLF or CR, as the csv module wants them."""
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
    """Whether bytes of the text could not be decoded."""
    return not text.isascii() and _MARKS.search(text) is not None


def marked_bytes(text: str) -> bytes:
    """The first bytes in a row that could not be decoded."""
    found = _MARKS.search(text)
    return bytes(ord(each) - _MARK for each in found[0]) if found else b""


def readable(text: str) -> str:
    """The text as a file can hold it, marked bytes as escapes."""
    return _MARKS.sub(lambda found: "".join(f"\\x{ord(each) - _MARK:02x}" for each in found[0]), text)
