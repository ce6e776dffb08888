"""XML feeds for Google Merchant Center: items of an RSS channel or entries of an Atom feed, read one at a time.

An item's elements are columns, named without namespace. If Google's element and the feed's own share a name and differ,
the feed's is `name (feed)`. Repeated elements become a list. Elements with children are nested, unless they mark up
text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import escape, quoteattr

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from pipelines.catalog.html_reader import ELEMENTS, TEXT_ELEMENTS, VOID_ELEMENTS
from pipelines.catalog.staged_rows import HIDDEN, RowWriter
from pipelines.catalog.text_files import open_unpacked
from pipelines.errors import UsageError

GOOGLE_PLACE = "base.google.com"
"""Text that identifies Google's namespaces."""
ITEMS = ("item", "entry")
"""Names of the elements that hold a product."""
_LOOKED_AT = 1000
"""Number of first items whose elements become columns; elements that first occur later are kept as JSON."""

Item = dict[str, Any]


class FeedFile:
    """A feed that can be read."""

    def __init__(self, name: str, filesystem: Any, path: str) -> None:
        self._name, self._filesystem, self._path = name, filesystem, path
        self.how = {"format": "xml"}

    def write(self, target: Path) -> None:
        """Write all rows to `target`. Raise `UsageError` if it is not XML, or declares entities, which can expand."""
        with open_unpacked(self._filesystem, self._path, self._name) as file:
            try:
                self._write(_items(self._events(file)), target)
            except ParseError as error:
                raise UsageError(
                    f"{self._name} is no well-formed XML: {error}. What is behind cannot be read: have it written again"
                ) from error
            except RecursionError as error:
                raise UsageError(
                    f"{self._name} has elements within elements without end, which no feed needs: have it written again"
                ) from error
            except DefusedXmlException as error:
                raise UsageError(
                    f"{self._name} declares entities or refers to other files ({error}), which a feed needs not: have "
                    "it written without"
                ) from error

    def _events(self, file: Any) -> Iterator[tuple[str, Element]]:
        try:
            yield from iterparse(file, events=("start", "end"))
        except DefusedXmlException:
            raise
        except (ValueError, LookupError) as error:
            # Of encodings with several bytes a letter expat reads UTF-8 and UTF-16 alone.
            raise UsageError(
                f"{self._name} is XML in an encoding that is not read here ({error}): write it as UTF-8 (iconv -f "
                'ENCODING -t UTF-8), and say so in its first line, encoding="UTF-8"'
            ) from error

    def _write(self, items: Iterator[Item], target: Path) -> None:
        first = list(itertools.islice(items, _LOOKED_AT))
        names = list(dict.fromkeys(name for item in first for name, value in item.items() if isinstance(value, str)))
        names = [name for name in names if name not in HIDDEN]
        writer = RowWriter(target, names)
        for number, item in enumerate(itertools.chain(first, items)):
            cells = [value if isinstance(value := item.get(name), str) else None for name in names]
            more = {name: value for name, value in item.items() if not isinstance(value, str) or name not in names}
            writer.add(number, cells, more={name: value for name, value in more.items() if name not in HIDDEN})
        writer.close(self.how)


def _items(events: Iterable[tuple[str, Element]]) -> Iterator[Item]:
    """Yield the items, freeing each one after it is read."""
    above: list[Element] = []
    for event, element in events:
        if event == "start":
            above.append(element)
            continue
        above.pop()
        if local_name(element) in ITEMS and not any(local_name(outer) in ITEMS for outer in above):
            yield item_values(element)
            element.clear()
        if above and not any(local_name(outer) in ITEMS for outer in above):
            above[-1].remove(element)


def item_values(element: Element) -> Item:
    """Return the values of an item, or of an element with children, by name."""
    google: Item = {}
    own: Item = {}
    for child in element:
        _add(google if GOOGLE_PLACE in child.tag else own, local_name(child), element_value(child))
    for name, value in own.items():
        if name not in google:
            google[name] = value
        elif value != google[name]:
            google[f"{name} (feed)"] = value
    return google


def _add(item: Item, name: str, value: Any) -> None:
    if name not in item:
        item[name] = value
    elif isinstance(item[name], list):
        item[name].append(value)
    else:
        item[name] = [item[name], value]


def element_value(element: Element) -> Any:
    """Return an element's value: text, "" if empty, or nested values. Text with HTML in it is returned as markup."""
    text = "".join(element.itertext()).strip()
    if len(element) and not _is_markup(element):
        return item_values(element)
    if len(element) and text:
        is_html = any(local_name(each).lower() in ELEMENTS for child in element for each in child.iter())
        return _markup(element).strip() if is_html else " ".join(" ".join(element.itertext()).split())
    return text or element.get("href", "")  # a link of Atom


def _is_markup(element: Element) -> bool:
    """Return whether an element's children only mark up text: there is text between them, or all are HTML."""
    between = [element.text, *(child.tail for child in element)]
    return any(text and text.strip() for text in between) or all(
        "xhtml" in child.tag or (GOOGLE_PLACE not in child.tag and local_name(child).lower() in TEXT_ELEMENTS)
        for child in element
    )


def _markup(element: Element) -> str:
    """Return the content of an element as HTML. An element unknown to HTML is replaced by its text between spaces."""
    parts = [escape(element.text or "")]
    for child in element:
        name = local_name(child)
        if name.lower() not in ELEMENTS:
            parts.append(f" {_markup(child)} ")
        else:
            attributes = "".join(f" {key.rpartition('}')[2]}={quoteattr(value)}" for key, value in child.items())
            parts.append(f"<{name}{attributes}>")
            if name.lower() not in VOID_ELEMENTS:
                parts.append(f"{_markup(child)}</{name}>")
        parts.append(escape(child.tail or ""))
    return "".join(parts)


def local_name(element: Element) -> str:
    """Return an element's name without its namespace."""
    return element.tag.rpartition("}")[2]
