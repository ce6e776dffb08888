"""XML feed with elements filled in and added to its items; all else stays, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element
from xml.parsers import expat
from xml.sax.saxutils import escape

from pipelines.catalog.feeds import element_value, item_values, local_name
from pipelines.catalog.rows import row_id
from pipelines.catalog.text_files import open_unpacked
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedProduct
from pipelines.exporting.feed_places import Edit, FeedItem, FeedLetters, FeedPlace, FeedPlaces, feed_letters
from pipelines.exporting.filled_csv import NOT_EMPTY
from pipelines.exporting.shops import NAME, PRODUCT_DETAIL, VALUE, google_name, is_called
from pipelines.exporting.targets import Cells, Filler, TargetColumn
from pipelines.store.folders import open_filesystem

_NAMESPACE = "http://base.google.com/ns/1.0"
_SPACE = b" \t\r\n"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

NOT_XML = "characters that XML cannot hold"


@dataclass(frozen=True, slots=True)
class FeedOriginal:
    """XML feed that the run read, and the settings by which it was read."""

    name: str
    config: InputConfig

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
            with open_unpacked(filesystem, source, self.name) as file, open(path, "wb") as out:
                _FeedFiller(self, feed_letters(file, out.write), products, filler, overwrites).write()
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
        letters: FeedLetters,
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
    ) -> None:
        self._original, self._filler, self._overwrites = original, filler, overwrites
        self._places = FeedPlaces(original.name, letters, self._edits)
        self._products = products
        self._product = next(products, None)
        self._number = -1

    def write(self) -> None:
        """Write the filled feed. Raises `UsageError` if it ends before the run's last product."""
        self._places.write()
        if self._product is not None:
            raise UsageError(
                f"{self._original.name} ends before item {self._product.source_row}, which the run read: it has "
                "changed; --original names the one that was read"
            )

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
            values, there = _repeated(cells, column), _elements(item, column)
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


def _elements(item: FeedItem, column: TargetColumn) -> Sequence[tuple[Element, FeedPlace]]:
    """Return the item's elements of the column: Google's of that name, else those of the feed's own format."""
    wanted = google_name(column.name)
    found = [
        (element, place)
        for element, place in zip(item.element, item.children, strict=True)
        if google_name(local_name(element)) == wanted
    ]
    googles = [each for each in found if _is_googles(_namespace(each[0]))]
    own = ("", _namespace(item.element))
    return googles or [each for each in found if _namespace(each[0]) in own]


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
