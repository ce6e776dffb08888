"""Feeds as they are published: RSS and Atom, lists and nested elements, and XML that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.catalog.html_text import shown_text
from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError

RSS = """<?xml version="1.0" encoding="{encoding}"?>
<rss version="2.0" xmlns:g="http://base.google.com/ns/1.0"><channel><title>Shop</title>
<item><g:id>1</g:id><title>Größe &amp; more</title><g:title>Size</g:title>
 <description><![CDATA[<b>Soft</b>]]></description>
 <g:google_product_category>3356</g:google_product_category><g:product_type>Home &gt; Bags</g:product_type>
 <g:additional_image_link>a</g:additional_image_link><g:additional_image_link>b</g:additional_image_link>
 <g:product_detail><g:attribute_name>Weight</g:attribute_name>
 <g:attribute_value>2 kg</g:attribute_value></g:product_detail>
 <g:product_detail><g:attribute_name>Color</g:attribute_name>
 <g:attribute_value>red</g:attribute_value></g:product_detail>
</item>
<item><g:id>2</g:id><g:title>Bag</g:title><g:product_type>Home &gt; Bags</g:product_type><g:color>blue</g:color></item>
</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xmlns:g="http://base.google.com/ns/1.0"><title>Shop</title>
<entry><id>urn:1</id><g:id>1</g:id><title>Bag</title><link href="https://x/1"/><summary>soft</summary></entry></feed>"""


pytestmark = pytest.mark.usefixtures("own_cache")


def scan(path: Path, **settings: Any) -> SourceFile:
    given = {"path": str(path), "id": "id", "category": {"text": "Bags"}, "fields": ["title"]} | settings
    return scan_sources(InputConfig.model_validate(given)).files[0]


def rows(file: SourceFile, columns: Any = None) -> list[dict[str, Any] | None]:
    return [row.values for row in read_piece(*file.rows, RowRange(0, 0, file.stop, file.num_rows), columns)]


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "utf-16"])
def test_items_of_rss(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "feed.xml"
    path.write_bytes(RSS.format(encoding=encoding).encode(encoding))
    file = scan(path, fields=["title", "product_detail.attribute_value", "additional_image_link[1]"])
    assert (file.format, file.num_rows, file.num_sampled, dict(file.dead_in_sample.rows)) == ("xml", 2, 2, {})
    first, second = rows(file)
    assert first == {
        "id": "1",
        "title": "Size",
        "title (feed)": "Größe & more",
        "description": "<b>Soft</b>",
        "google_product_category": "3356",
        "product_type": "Home > Bags",
        "additional_image_link": ["a", "b"],
        "color": None,
        "product_detail": [
            {"attribute_name": "Weight", "attribute_value": "2 kg"},
            {"attribute_name": "Color", "attribute_value": "red"},
        ],
    }
    assert second is not None
    assert (second["color"], second["description"]) == ("blue", None)
    assert rows(file, ["product_detail.attribute_value", "color"])[1] == {"color": "blue"}


@pytest.mark.parametrize(
    ("inner", "value", "shown"),
    [
        ("t <b>bold</b> more", "t <b>bold</b> more", "t bold more"),
        ("<b>bold</b> more", "<b>bold</b> more", "bold more"),
        ("A &amp; B &lt; <i>C</i>", "A &amp; B &lt; <i>C</i>", "A & B < C"),
        ("<p>one</p>\n<p>two, <b>three</b></p>", "<p>one</p>\n<p>two, <b>three</b></p>", "one\ntwo, three"),
        ("<ul><li>one</li><li>two</li></ul>", "<ul><li>one</li><li>two</li></ul>", "one\ntwo"),
        ('one<br/>two<a href="u?a&amp;b">x</a>', 'one<br>two<a href="u?a&amp;b">x</a>', "one\ntwox"),
        ('<x:div xmlns:x="http://www.w3.org/1999/xhtml"><x:p>one</x:p>two</x:div>', "<div><p>one</p>two</div>", None),
        ("Bag &amp; <brand>Acme</brand>red", "Bag & Acme red", "Bag & Acme red"),
        ("<p>  </p>", "", ""),
        ("<g:name>Bag</g:name>", {"name": "Bag"}, None),
        ("<title>Bag</title><size>2 <b>kg</b></size>", {"title": "Bag", "size": "2 <b>kg</b>"}, None),
    ],
)
def test_text_with_elements_in_it_is_one_text(tmp_path: Path, inner: str, value: Any, shown: str | None) -> None:
    path = tmp_path / "feed.xml"
    path.write_text(RSS.format(encoding="utf-8").replace("<![CDATA[<b>Soft</b>]]>", inner))
    first = rows(scan(path))[0]
    assert first is not None
    assert (first["description"] or "") == value
    if shown is not None:
        assert shown_text(value, "auto") == shown


def test_entries_of_atom(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    path.write_text(ATOM)
    assert rows(scan(path)) == [
        {"id": "1", "id (feed)": "urn:1", "title": "Bag", "link": "https://x/1", "summary": "soft"}
    ]


def test_an_element_that_comes_late_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.catalog.feeds._LOOKED_AT", 1)
    path = tmp_path / "feed.xml"
    path.write_text(RSS.format(encoding="utf-8"))
    file = scan(path, fields=["color"])
    assert [(row or {}).get("color") for row in rows(file, ["color"])] == [None, "blue"]


def test_what_is_no_feed_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    text = RSS.format(encoding="utf-8")
    path.write_text(text[:-30])
    with pytest.raises(UsageError, match=r"feed\.xml is no well-formed XML: .*line 12, column"):
        scan(path)
    path.write_text(text.replace("Bag<", "<p>" * 20_000 + "x" + "</p>" * 20_000 + "<"))
    with pytest.raises(UsageError, match=r"feed\.xml has elements within elements without end"):
        scan(path)
    bomb = '<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    path.write_text(text.replace('<?xml version="1.0" encoding="utf-8"?>', bomb).replace("Bag<", "&b;<"))
    with pytest.raises(UsageError, match=r"feed\.xml declares entities"):
        scan(path)


@pytest.mark.parametrize("encoding", ["Shift_JIS", "GBK", "utf-7", "hex", "klingon"])
def test_an_encoding_that_xml_is_not_read_in_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "feed.xml"
    path.write_text(RSS.format(encoding=encoding))
    with pytest.raises(UsageError, match=r"feed\.xml is XML in an encoding that is not read here .*iconv"):
        scan(path)
