"""Texts are read back from the catalog: one that has changed since shows none, and one that is gone is no failure."""

from __future__ import annotations

import shutil
from pathlib import Path

from hpd_core import Evidence
from pipelines.catalog.html_text import read_html
from pipelines.job.source_texts import Mark, SourceText
from pipelines.reporting.page import render_html
from tests.pipelines.reporting.made_runs import write_run
from tests.pipelines.reporting.reports import coffee, facts_of
from tests.tables import table


@table("file_format", ["jsonl", "parquet"])
def test_a_catalog_that_has_changed_shows_no_wrong_text(tmp_path: Path, file_format: str) -> None:
    products = [coffee(number) for number in range(6)]
    run = write_run(tmp_path / "a", [products], file_format=file_format)
    other = [*products[:2], coffee(99), *products[3:]]
    write_run(tmp_path / "b", [other], file_format=file_format)
    catalog = f"catalog.{file_format}"
    shutil.copy(tmp_path / "b" / catalog, tmp_path / "a" / catalog)
    facts = facts_of(run)
    without = {product.product_id for product in facts.sample.products if product.fields is None}
    # A longer line pushes the last one over the end of its shard.
    assert without == ({"c2"} if file_format == "parquet" else {"c2", "c5"})
    assert any("has changed since the run" in note for note in facts.notes)
    shown = next(product for product in facts.sample.products if product.product_id == "c2")
    assert [value.text for value in shown.values if value.attribute == "Brand"] == ["Acme"]
    assert "Its text could not be read back" in render_html(facts)


@table("damage", ["gone", "cut", "garbage", "folder"])
@table("file_format", ["jsonl", "parquet"])
def test_a_catalog_that_cannot_be_read(tmp_path: Path, file_format: str, damage: str) -> None:
    run = write_run(tmp_path, [[coffee(0), coffee(1)]], file_format=file_format)
    catalog = tmp_path / f"catalog.{file_format}"
    content = catalog.read_bytes()
    catalog.unlink()
    if damage == "folder":
        catalog.mkdir()
    elif damage != "gone":
        catalog.write_bytes(content[: len(content) // 2] if damage == "cut" else b"\xff\x00" * len(content))
    facts = facts_of(run)
    assert len(facts.sample.products) == 2
    assert any(str(catalog) in note for note in facts.notes)
    assert facts.sample.products[1].fields is None
    assert render_html(facts)


def test_a_place_in_html_is_marked_in_the_text_that_it_shows() -> None:
    original = "<p>Tom &amp; <b>Jerry</b></p>"
    source = SourceText(original, read_html(original, "auto"))
    assert source.text == "Tom & Jerry"

    def mark(text: str, found: str | None = None) -> Mark | None:
        start = original.index(text)
        return source.mark(Evidence("title", start, start + len(text), found or text, "exact"), 3)

    assert mark("Tom &amp; <b>Jerry") == Mark(0, 11, 3, "exact")
    assert mark("&amp;") == Mark(4, 5, 3, "exact")
    assert mark("<b>") is None, "nothing is shown of it"
    assert mark("Jerry", "Harry") is None, "it holds something else"
    plain = SourceText("Tom", None)
    assert (plain.text, plain.mark(Evidence("t", 1, 3, "om", "folded"), 0)) == ("Tom", Mark(1, 3, 0, "folded"))
