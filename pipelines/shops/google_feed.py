"""XML feed with elements filled in and added to its items; all else stays, byte for byte.

Items of an XML feed, as the run's reader has them, and the byte offsets of each element.

UTF-16 feeds are edited as UTF-8, so that their tags can be found in their bytes. Valid UTF-16 comes back as the same
bytes; a byte order mark is a letter like any other.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape

from pipelines.catalog.feeds import ITEMS, element_value, item_values, local_name
from pipelines.catalog.rows import row_id
from pipelines.catalog.text_files import open_unpacked
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedProduct
from pipelines.exporting.details import is_called
from pipelines.exporting.filled_csv import NOT_EMPTY
from pipelines.exporting.targets import Cells, Filler, TargetColumn
from pipelines.store.folders import open_filesystem

PRODUCT_DETAIL = "product_detail"
NAME, VALUE = "attribute_name", "attribute_value"
"""Names of a detail's parts, as elements."""
_NAMESPACE = "http://base.google.com/ns/1.0"
_SPACE = b" \t\r\n"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

NOT_XML = "characters that XML cannot hold"


@dataclass(frozen=True, slots=True)
class FeedOriginal:
    """XML feed that the run read, the settings by which it was read, and what attribute an element's name means."""

    name: str
    config: InputConfig
    meaning: Callable[[str], str]

    @property
    def header(self) -> Sequence[str]:
        """Names of its columns: a feed has none."""
        return ()

    @property
    def id_columns(self) -> Sequence[str]:
        """Columns that the products' ids are made of: a feed has none."""
        return ()

    def fill(
        self,
        columns: Sequence[TargetColumn],
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
        path: Path,
    ) -> None:
        """Write the filled feed to `path`. Raises `UsageError` if it is not the run's, or is not XML."""
        filesystem, source = open_filesystem(self.name, anonymous=self.config.anonymous)
        try:
            with open_unpacked(filesystem, source, self.name) as file:
                data = bytes(file.read())
            codec = utf16_of(data)
            data = data.decode(codec).encode() if codec else data
            filled = _FeedFiller(self, data, bool(codec), products, filler, overwrites).filled()
            path.write_bytes(filled.decode().encode(codec) if codec else filled)
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.name} is no UTF-16 throughout ({error}): have it written again") from error
        except expat.ExpatError as error:
            raise UsageError(f"{self.name} is no XML that can be read: {error}") from error
        except FileNotFoundError as error:
            raise UsageError(
                f"cannot read {self.name}: no such file; --original names the one that the run read, if it was moved"
            ) from error


class _FeedFiller:
    """Maker of edits for items that are products."""

    def __init__(
        self,
        original: FeedOriginal,
        data: bytes,
        is_utf16: bool,
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
    ) -> None:
        self._original, self._filler, self._overwrites = original, filler, overwrites
        self._places = FeedPlaces(original.name, data, is_utf16, self._edits)
        self._products = products
        self._product = next(products, None)
        self._number = -1

    def filled(self) -> bytes:
        """Return the filled feed. Raises `UsageError` if it ends before the run's last product."""
        filled = self._places.edited()
        if self._product is not None:
            raise UsageError(
                f"{self._original.name} ends before item {self._product.source_row}, which the run read: it has "
                "changed; --original names the one that was read"
            )
        return filled

    def _edits(self, item: FeedItem) -> Sequence[Edit]:
        """Return the edits of an item."""
        self._number += 1
        product = self._product
        if product is None or product.source_row != self._number:
            return ()
        self._product = next(self._products, None)
        self._check(item, product)
        edits: list[Edit] = []
        added: list[bytes] = []
        cells = self._filler.fill(product)
        for column in cells.values:
            values, there = _repeated(cells, column), self._elements(item, column)
            if any(_NO_XML.search(value) for value in values):
                self._leave_out(column, NOT_XML, product)
            elif column.detail is not None:
                new = self._detail(column.detail, cells.text(column))
                there = [each for each in there if is_called(_part(each[0], NAME), column.detail)]
                if not there:
                    added.append(new)
                elif self._overwrites or not any(_part(element, VALUE) for element, _ in there):
                    first, *rest = (place for _, place in there)
                    edits.append(Edit(first.start, first.stop, new))
                    edits += [Edit(place.start, place.stop, b"") for place in rest]
                else:
                    self._leave_out(column, NOT_EMPTY, product)
            elif not there:
                added += [self._element(column.name, value) for value in values]
            elif self._overwrites or not any(element_value(element) for element, _ in there):
                edits += self._filled([place for _, place in there], [self._encoded(value) for value in values])
            else:
                self._leave_out(column, NOT_EMPTY, product)
        return [*edits, self._addition(item, added)] if added else edits

    def _check(self, item: FeedItem, product: ExportedProduct) -> None:
        config = self._original.config
        found = row_id(item_values(item.element), config)
        if config.id is not None and found != product.product_id:
            raise UsageError(
                f"{self._original.name}, item {product.source_row}: product {found!r}, where the run read "
                f"{product.product_id!r}; the file has changed, --original names the one that was read"
            )

    def _leave_out(self, column: TargetColumn, reason: str, product: ExportedProduct) -> None:
        self._filler.leave_out(column.attribute, reason, product, product.values[column.attribute])

    def _filled(self, places: Sequence[FeedPlace], values: Sequence[bytes]) -> Iterator[Edit]:
        """Yield edits that put the values into the first of these elements and new ones after it; remove the rest."""
        first, *rest = places
        opening, closing = first.opening(), first.closing()
        further = b"".join(opening + value + closing for value in values[1:])
        if first.is_one_tag:
            yield Edit(first.start, first.stop, opening + values[0] + closing + further)
        else:
            # A comment in an element without a value stays.
            is_kept = not self._overwrites and self._places.text(first.inner, first.end).strip(_SPACE)
            yield Edit(first.end if is_kept else first.inner, first.end, values[0])
            yield Edit(first.stop, first.stop, further)
        yield from (Edit(place.start, place.stop, b"") for place in rest)

    def _addition(self, item: FeedItem, elements: Sequence[bytes]) -> Edit:
        """Return the edit that adds elements after the item's last one, indented as that is."""
        if item.children:
            last = item.children[-1]
            before = self._places.text(item.place.inner, last.start)
            gap = before[len(before.rstrip(_SPACE)) :]
            return Edit(last.stop, last.stop, b"".join(gap + element for element in elements))
        new = b"".join(elements)
        if item.place.is_one_tag:
            return Edit(item.place.start, item.place.stop, item.place.opening() + new + item.place.closing())
        return Edit(item.place.end, item.place.end, new)

    def _elements(self, item: FeedItem, column: TargetColumn) -> Sequence[tuple[Element, FeedPlace]]:
        """Return the item's elements of the column: Google's of that name, else those of the feed's own format."""
        meaning = self._original.meaning
        wanted = meaning(column.name)
        found = [
            (element, place)
            for element, place in zip(item.element, item.children, strict=True)
            if meaning(local_name(element)) == wanted
        ]
        googles = [each for each in found if _is_googles(_namespace(each[0]))]
        own = ("", _namespace(item.element))
        return googles or [each for each in found if _namespace(each[0]) in own]

    def _element(self, name: str, value: str) -> bytes:
        """Return an element of Google's; in a feed without its namespace the element declares it."""
        return self._around(name, self._encoded(value), declares=True)

    def _detail(self, name: str, value: str) -> bytes:
        parts = ((NAME, name), (VALUE, value))
        inner = b"".join(self._around(part, self._encoded(text), declares=False) for part, text in parts)
        return self._around(PRODUCT_DETAIL, inner, declares=True)

    def _around(self, name: str, inner: bytes, *, declares: bool) -> bytes:
        prefix = self._places.prefix_of(_is_googles)
        declared = f' xmlns:g="{_NAMESPACE}"' if prefix is None and declares else ""
        tag = f"{'g:' if prefix is None else prefix}{name}"
        opening, closing = (each.encode(self._places.encoding) for each in (f"<{tag}{declared}>", f"</{tag}>"))
        return opening + inner + closing

    def _encoded(self, value: str) -> bytes:
        return escape(value).encode(self._places.encoding, "xmlcharrefreplace")


def _part(detail: Element, name: str) -> str:
    """Return the text of a part of a detail; "" if it is missing."""
    return next(("".join(each.itertext()).strip() for each in detail if local_name(each) == name), "")


def _is_googles(namespace: str) -> bool:
    return "base.google.com/ns" in namespace


def _namespace(element: Element) -> str:
    return element.tag.rpartition("}")[0].removeprefix("{")


def _repeated(cells: Cells, column: TargetColumn) -> Sequence[str]:
    """Return the texts of the column's elements: one per value if a text feed would join them by commas."""
    return cells.values[column] if cells.joints[column] == "," else [cells.text(column)]


_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_NAME = re.compile(rb"<[^\s/>]+")
# Between the parts of a name; a namespace that holds it is refused, by the reader too.
_BETWEEN = "}"


class Edit(NamedTuple):
    """Replacement of bytes of the feed."""

    start: int
    stop: int
    new: bytes


@dataclass(slots=True)
class FeedPlace:
    """Place of an element, in bytes from the feed's beginning.

    Attributes:
        tag: its first tag, raw.
        end: offset of its last tag; for `<a/>`, which is one tag, the same as `stop`.
    """

    start: int
    tag: bytes
    end: int = 0
    stop: int = 0

    @property
    def is_one_tag(self) -> bool:
        """Whether it is written as `<a/>`."""
        return self.tag.endswith(b"/>")

    @property
    def inner(self) -> int:
        """Offset after its first tag."""
        return self.start + len(self.tag)

    def opening(self) -> bytes:
        """Return its first tag as an opening one, so that content can follow."""
        return self.tag[:-2] + b">" if self.is_one_tag else self.tag

    def closing(self) -> bytes:
        """Return its last tag."""
        found = _NAME.match(self.tag)
        return b"</" + (found[0][1:] if found else b"") + b">"


class FeedItem(NamedTuple):
    """Item of the feed.

    Attributes:
        element: the element as the run's reader has it.
        children: places of the element's own children, in the same order.
    """

    element: Element
    place: FeedPlace
    children: Sequence[FeedPlace]


class FeedPlaces:
    """Editor of a feed: it reads it once, and asks for the edits of every item.

    Attributes:
        encoding: encoding of the feed.
    """

    def __init__(self, name: str, data: bytes, is_utf16: bool, edits: Callable[[FeedItem], Sequence[Edit]]) -> None:
        """Take the feed's bytes. `is_utf16`: they are UTF-8 here, whatever the feed declares."""
        self.encoding = "utf-8"
        self._name, self._data, self._is_utf16, self._edits_of = name, data, is_utf16, edits
        self._edits: list[Edit] = []
        self._depth = self._item_depth = 0
        self._item: FeedPlace | None = None
        self._children: list[FeedPlace] = []
        self._builder = TreeBuilder()
        self._bound: dict[str | None, list[str | None]] = {}
        # Namespaces are resolved as the run's reader resolves them.
        parser = self._parser = expat.ParserCreate("utf-8" if is_utf16 else None, namespace_separator=_BETWEEN)
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declared
        parser.StartNamespaceDeclHandler = self._bind
        parser.EndNamespaceDeclHandler = self._unbind
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse_entity

    def edited(self) -> bytes:
        """Return the edited feed. Raises `UsageError` if it cannot be edited, and `ExpatError` if it is not XML."""
        if b"\0" in self._data[:4]:
            self._refuse_encoding()
        self._parser.Parse(self._data, True)
        parts, place = [], 0
        for edit in self._edits:
            parts += [self._data[place : edit.start], edit.new]
            place = edit.stop
        return b"".join([*parts, self._data[place:]])

    def text(self, start: int, stop: int) -> bytes:
        """Return the bytes between two offsets."""
        return self._data[start:stop]

    def prefix_of(self, is_wanted: Callable[[str], bool]) -> str | None:
        """Return the prefix, with its colon, of a wanted namespace for the item's elements; None if it has none."""
        for prefix, uris in self._bound.items():
            if uris and uris[-1] is not None and is_wanted(uris[-1]):
                return f"{prefix}:" if prefix else ""
        return None

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        if self._is_utf16:
            return
        self.encoding = (encoding or self.encoding).lower()
        if self.encoding.startswith(("utf-16", "utf16", "utf-32")):
            self._refuse_encoding()

    def _refuse_encoding(self) -> None:
        raise UsageError(f"{self._name} is UTF-32, or declares what it is not: convert it to UTF-8 and run it again")

    def _refuse_entity(self, name: str, *rest: object) -> None:
        raise UsageError(f"{self._name} declares the entity {name!r}, which no feed needs; remove it")

    def _bind(self, prefix: str | None, uri: str | None) -> None:
        self._bound.setdefault(prefix, []).append(uri)

    def _unbind(self, prefix: str | None) -> None:
        self._bound[prefix].pop()

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._item is None:
            if name.rpartition(_BETWEEN)[2] not in ITEMS:
                return
            self._item, self._item_depth = self._opened(), self._depth
            self._children, self._builder = [], TreeBuilder()
        elif self._depth == self._item_depth + 1:
            self._children.append(self._opened())
        self._builder.start(_tag(name), {_tag(key): value for key, value in attributes.items()})

    def _characters(self, text: str) -> None:
        if self._item is not None:
            self._builder.data(text)

    def _end(self, name: str) -> None:
        item, depth = self._item, self._depth
        self._depth -= 1
        if item is None:
            return
        self._builder.end(_tag(name))
        if depth == self._item_depth + 1:
            self._closed(self._children[-1])
        elif depth == self._item_depth:
            self._closed(item)
            edits = self._edits_of(FeedItem(self._builder.close(), item, self._children))
            self._edits.extend(sorted(edits, key=lambda edit: edit[:2]))
            self._item = None

    def _opened(self) -> FeedPlace:
        """Return the place of an element that begins here."""
        start = self._parser.CurrentByteIndex
        return FeedPlace(start, self._tag_at(start))

    def _closed(self, place: FeedPlace) -> None:
        # After <a/> the parser names the place of what follows, whatever that is, so it is not asked.
        place.end = place.stop = place.inner
        if not place.is_one_tag:
            place.end = self._parser.CurrentByteIndex
            place.stop = place.end + len(self._tag_at(place.end))

    def _tag_at(self, place: int) -> bytes:
        found = _TAG.match(self._data, place)
        if found is None:
            raise UsageError(f"{self._name}: its tags cannot be found in its bytes: convert it to UTF-8 and run again")
        return found[0]


def _tag(name: str) -> str:
    """Return an element's name as the run's reader writes it."""
    return f"{{{name}" if _BETWEEN in name else name


_BEGINNINGS = (
    *((codecs.BOM_UTF32_LE, ""), (b"<\0\0\0", ""), (codecs.BOM_UTF16_LE, "utf-16-le")),
    *((codecs.BOM_UTF16_BE, "utf-16-be"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be")),
)


def utf16_of(data: bytes) -> str:
    """Return the codec of a feed in UTF-16; "" for any other."""
    return next((codec for beginning, codec in _BEGINNINGS if data.startswith(beginning)), "")
