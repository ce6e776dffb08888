"""An XML feed with elements filled in and added to its items; all else stays, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape

from pipelines.catalog.cells import cell_id
from pipelines.catalog.text_files import open_unpacked
from pipelines.errors import UsageError
from pipelines.exporting.answers import Product
from pipelines.exporting.filled_csv import NOT_EMPTY
from pipelines.exporting.google import google_name
from pipelines.exporting.targets import Cells, Filler, TargetColumn
from pipelines.store.folders import open_filesystem

_CHUNK = 1 << 20
_ITEMS = ("item", "entry")
_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_SPACE = b" \t\r\n"
_ENCODING = re.compile(rb"""\A(?:\xef\xbb\xbf)?<\?xml[^>]*encoding\s*=\s*["']([\w.-]+)["']""")


class _Edit(NamedTuple):
    """Bytes of the feed that are replaced."""

    start: int
    stop: int
    new: bytes


@dataclass(slots=True)
class _Child:
    name: str
    start: int
    stop: int = 0
    text: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FeedOriginal:
    """An XML feed that the run read.

    Attributes:
        checks_ids: the run's ids are those of the items.
    """

    name: str
    anonymous: bool
    checks_ids: bool

    def fill(
        self, columns: Sequence[TargetColumn], products: Iterator[Product], filler: Filler, overwrites: bool, path: Path
    ) -> None:
        """Writes the filled feed to `path`. Raises `UsageError` if it is not the run's, or no XML."""
        filesystem, source = open_filesystem(self.name, anonymous=self.anonymous)
        try:
            with open_unpacked(filesystem, source, self.name) as file, open(path, "wb") as out:
                _FeedFiller(self, file, products, filler, overwrites).write(out.write)
        except expat.ExpatError as error:
            raise UsageError(f"{self.name} is no XML that can be read: {error}") from error
        except FileNotFoundError as error:
            raise UsageError(
                f"cannot read {self.name}: no such file; --original names the one that the run read, if it was moved"
            ) from error


class _FeedFiller:
    """Reads a feed chunk by chunk; what is behind the last whole item waits."""

    def __init__(
        self, original: FeedOriginal, file: Any, products: Iterator[Product], filler: Filler, overwrites: bool
    ) -> None:
        self._original, self._file, self._filler, self._overwrites = original, file, filler, overwrites
        self._products = products
        self._product = next(products, None)
        self._number = 0
        self._data, self._base = bytearray(), 0
        self._edits: list[_Edit] = []
        self._path: list[str] = []
        self._item_depth = 0
        self._children: list[_Child] = []
        self._item_start = 0
        self._encoding = "utf-8"
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_entity

    def write(self, write: Callable[[bytes], object]) -> None:
        """Passes the filled feed on."""
        is_first = True
        while chunk := bytes(self._file.read(_CHUNK)):
            if is_first:
                self._encoding, is_first = self._find_encoding(chunk), False
            self._data += chunk
            self._parser.Parse(chunk, False)
            self._flush(write, self._item_start if self._item_depth else self._parser.CurrentByteIndex)
        self._parser.Parse(b"", True)
        self._flush(write, self._base + len(self._data))
        if self._product is not None:
            raise UsageError(
                f"{self._original.name} ends before item {self._product.source_row}, which the run read: it has "
                "changed; --original names the one that was read"
            )

    def _find_encoding(self, head: bytes) -> str:
        found = _ENCODING.match(head)
        encoding = found[1].decode().lower() if found else "utf-8"
        if head[:2] in (b"\xff\xfe", b"\xfe\xff") or encoding.startswith(("utf-16", "utf16", "utf-32")):
            raise UsageError(f"{self._original.name} is UTF-16 or UTF-32: convert it to UTF-8 and run it again")
        return encoding

    def _flush(self, write: Callable[[bytes], object], until: int) -> None:
        for edit in self._edits:
            write(self._cut(edit.start))
            self._cut(edit.stop)
            write(edit.new)
        self._edits.clear()
        write(self._cut(until))

    def _cut(self, until: int) -> bytes:
        """The bytes up to a place in the feed, taken off."""
        size = max(0, until - self._base)
        taken = bytes(self._data[:size])
        del self._data[:size]
        self._base += len(taken)
        return taken

    def _refuse_entity(self, name: str, *rest: object) -> None:
        raise UsageError(f"{self._original.name} declares the entity {name!r}, which no feed needs; remove it")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._path.append(name)
        place = self._parser.CurrentByteIndex
        if not self._item_depth and _local(name) in _ITEMS:
            self._item_depth, self._item_start, self._children = len(self._path), place, []
        elif self._item_depth and len(self._path) == self._item_depth + 1:
            self._children.append(_Child(name, place))

    def _characters(self, text: str) -> None:
        if self._item_depth and len(self._path) == self._item_depth + 1:
            self._children[-1].text.append(text)

    def _end(self, name: str) -> None:
        if self._item_depth and len(self._path) == self._item_depth + 1:
            # Of an empty element both begin at the same place.
            self._children[-1].stop = self._behind_tag(self._parser.CurrentByteIndex)
        elif self._item_depth and len(self._path) == self._item_depth:
            self._item()
            self._item_depth = 0
        self._path.pop()

    def _behind_tag(self, place: int) -> int:
        found = _TAG.match(self._data, place - self._base)
        return self._base + found.end() if found else place

    def _item(self) -> None:
        """An item has ended."""
        if self._product is not None and self._product.source_row == self._number:
            self._fill(self._product)
            self._product = next(self._products, None)
        self._number += 1

    def _fill(self, product: Product) -> None:
        ids = sorted(
            (child for child in self._children if _local(child.name) == "id"), key=lambda each: ":" not in each.name
        )
        own = cell_id("".join(ids[0].text)) if ids else None
        if self._original.checks_ids and own != product.product_id:
            raise UsageError(
                f"{self._original.name}, item {product.source_row}: product {own!r}, where the run read "
                f"{product.product_id!r}; the file has changed, --original names the one that was read"
            )
        # Atom has an id of its own beside Google's.
        prefix = ids[0].name.rpartition(":")[0] if ids else "g"
        cells = self._filler.fill(product)
        edits, added = [], b""
        for column in cells.values:
            elements = [self._element(prefix, column.name, value) for value in _repeated(cells, column)]
            there = [child for child in self._children if google_name(_local(child.name)) == google_name(column.name)]
            if not there:
                added += b"".join(self._gap() + element for element in elements)
            elif self._overwrites or not any("".join(child.text).strip() for child in there):
                edits.append(_Edit(there[0].start, there[0].stop, b"".join(elements)))
                edits.extend(_Edit(child.start, child.stop, b"") for child in there[1:])
            else:
                self._filler.leave_out(column.attribute, NOT_EMPTY, product, product.values[column.attribute])
        if added and self._children:
            edits.append(_Edit(self._children[-1].stop, self._children[-1].stop, added))
        self._edits.extend(sorted(edits))

    def _gap(self) -> bytes:
        """What stands in front of the item's last element: its indentation."""
        stop = start = self._children[-1].start - self._base
        while start and self._data[start - 1] in _SPACE:
            start -= 1
        return bytes(self._data[start:stop])

    def _element(self, prefix: str, name: str, value: str) -> bytes:
        tag = f"{prefix}:{name}" if prefix else name
        return f"<{tag}>{escape(value)}</{tag}>".encode(self._encoding, "xmlcharrefreplace")


def _repeated(cells: Cells, column: TargetColumn) -> Sequence[str]:
    """What would be several values between commas in a text feed is an element each."""
    return cells.values[column] if cells.joints[column] == "," else [cells.text(column)]


def _local(name: str) -> str:
    return name.rpartition(":")[2]
