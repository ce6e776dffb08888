"""Google feeds, in text and XML: filled in with every other byte as it was, or new ones to join by id."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import ask, bag, exported, write_shop_run

FEED = """<?xml version="1.0" encoding="UTF-8"?>
<!-- a <item> that is none -->
<rss xmlns:g="http://base.google.com/ns/1.0" version="2.0"><channel>
  <title>Shop &amp; Co</title>
  <item>
    <g:id>b</g:id>
    <title><![CDATA[A <b>bag</b> > that]]></title>
    <g:color/>
    <g:shipping><g:id>x</g:id><g:price note="a > b">1 EUR</g:price></g:shipping>
  </item>
  <item><g:id>c</g:id><g:color>Green</g:color><g:size_type> </g:size_type></item>
  <item>
\t<g:id>d</g:id></item>
</channel></rss>
"""


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "feed.xml"
    path.write_text(FEED, encoding="utf-8")
    return path


def write_feed_run(folder: Path, feed: Path) -> str:
    rows = [bag("b", row=0), bag("c", row=1), Row("d", {"Brand": "Té & <Co>"}, "", "Bags", 2)]
    return write_shop_run(folder, feed, "xml", "id", rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FEED.replace("<g:id>b<", "<g:id>z<"), "item 0: product 'z', where the run read 'b'"),
        (FEED[: FEED.index("  <item>\n\t")] + "</channel></rss>", "ends before item 2"),
        (FEED[:-20], "is no XML that can be read"),
        (FEED.replace("<rss", '<!DOCTYPE r [<!ENTITY a "b">]><rss'), "declares the entity 'a'"),
        (FEED.replace("UTF-8", "UTF-16"), "convert it to UTF-8"),
    ],
)
def test_a_feed_that_is_not_the_runs_is_refused(feed: Path, tmp_path: Path, text: str, message: str) -> None:
    """Also where its content is what the plan says, as a storage's own mark of it may be."""
    feed.write_text(text, encoding="utf-8")
    uri = write_feed_run(tmp_path / "run", feed)
    code, _, error = ask(uri, "--to", "google", "--out", str(tmp_path / "out"))
    assert (code, message in error) == (2, True), error


def test_a_letter_that_the_feeds_encoding_lacks_is_a_reference(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    path.write_bytes(FEED.replace("UTF-8", "ISO-8859-1").encode("latin-1"))
    uri = write_shop_run(tmp_path / "run", path, "xml", "id", [Row("b", {"Brand": "日é"}, "", "Bags", 0)])
    exported(uri, "--to", "google", "--out", str(tmp_path / "new.xml"))
    assert b"<g:brand>&#26085;\xe9</g:brand>" in (tmp_path / "new.xml").read_bytes()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_feed_in_utf16_is_filled_in(feed: Path, tmp_path: Path, encoding: str) -> None:
    """As the same feed in UTF-8 is, in its own letters."""
    exported(write_feed_run(tmp_path / "run", feed), "--to", "google", "--out", str(tmp_path / "new.xml"))
    expected = (tmp_path / "new.xml").read_text(encoding="utf-8").replace("UTF-8", "UTF-16").replace("Shop", "Läden 靴")
    path = tmp_path / "wide.xml"
    path.write_bytes(FEED.replace("UTF-8", "UTF-16").replace("Shop", "Läden 靴").encode(encoding))
    exported(write_feed_run(tmp_path / "wide", path), "--to", "google", "--out", str(tmp_path / "wide_new.xml"))
    assert (tmp_path / "wide_new.xml").read_bytes() == expected.encode(encoding)


def test_a_text_feed_is_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "feed.tsv"
    path.write_text("id\ttitle\tColor\tproduct width\nb\tA bag\t\t\nc\tOther\tgreen\t5 cm\n", encoding="utf-8")
    uri = write_shop_run(tmp_path / "run", path, "csv", "id", [bag("b", row=0), bag("c", row=1)])
    exported(uri, "--to", "google", "--out", str(tmp_path / "out"), "--columns", "Lined=")
    assert (tmp_path / "out" / "feed.tsv").read_text(encoding="utf-8") == (
        "id\ttitle\tColor\tproduct width\tbrand\n"
        "b\tA bag\tBlack/Rose gold\t35.56 cm\tAcme\n"
        "c\tOther\tgreen\t5 cm\tAcme\n"
    )


def test_a_run_on_other_files_makes_a_supplemental_feed(tmp_path: Path) -> None:
    path = tmp_path / "catalog.parquet"
    path.write_bytes(b"")
    uri = write_shop_run(tmp_path / "run", path, "parquet", "id", [bag("b"), Row("c", {"Brand": "x" * 71}, "", "Bags")])
    result = exported(uri, "--to", "google")
    with open(result["files"][0], encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert rows == [
        ["id", "brand", "color", "product_width", "product_detail"],
        ["b", "Acme", "Black/Rose gold", "35.56 cm", ":Lined:true"],
        ["c", "", "", "", ""],
    ]
    assert result["left_out"]["longer than 70 characters"] == 1
    (note,) = result["notes"]
    assert "supplemental feed" in note
