"""Conversion of UTF-16 feeds to UTF-8 and back, so that their tags can be found in their bytes.

Valid UTF-16 comes back as the same bytes; a byte order mark is a letter like any other.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_HEAD = 4
_BEGINNINGS = (
    *((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    *((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be")),
)
_UTF32 = (codecs.BOM_UTF32_LE, b"<\0\0\0")


@dataclass(frozen=True, slots=True)
class FeedLetters:
    """Bytes of a feed in the encoding in which they are edited.

    Attributes:
        read: function that returns the next bytes, about `size` of them, as a file's `read`; b"" at the end.
        write: function that takes the edited bytes.
        is_utf8: whether the bytes are UTF-8, whatever the feed declares.
    """

    read: Callable[[int], bytes]
    write: Callable[[bytes], object]
    is_utf8: bool


def feed_letters(file: Any, write: Callable[[bytes], object]) -> FeedLetters:
    """Return a feed that is read from `file` and written by `write`; converted to UTF-8 if it is UTF-16."""
    head = b""
    while len(head) < _HEAD and (more := bytes(file.read(_HEAD - len(head)))):
        head += more
    codec = next((name for beginning, name in _BEGINNINGS if head.startswith(beginning)), None)
    whole = _Rejoined(head, file)
    if codec is None or head.startswith(_UTF32):
        return FeedLetters(whole.read, write, is_utf8=False)
    decode = codecs.getincrementaldecoder(codec)().decode
    decode_utf8 = codecs.getincrementaldecoder("utf-8")().decode

    def read(size: int) -> bytes:
        # Half a letter decodes to "", which must not be taken for the end of the file.
        while data := whole.read(size):
            if text := decode(data):
                return text.encode()
        return decode(b"", True).encode()

    return FeedLetters(read, lambda data: write(decode_utf8(data).encode(codec)), is_utf8=True)


class _Rejoined:
    """File whose first bytes were read already."""

    def __init__(self, head: bytes, file: Any) -> None:
        self._head, self._file = head, file

    def read(self, size: int) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        return bytes(self._file.read(size))
