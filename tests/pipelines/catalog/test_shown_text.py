"""A record's texts are those that a field shows, and evidence has its places where they stand in the catalog."""

from __future__ import annotations

import pickle
import unicodedata
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Evidence, Record
from hpd_core.text.grounding import Grounder
from pipelines.catalog.rows import RowRefusal, to_record
from pipelines.catalog.shown_text import MarkedUpRecord, original_places, shown_record, shown_text
from pipelines.config.catalog_input import InputConfig
from pipelines.config.extraction import JobConfig
from pipelines.config.result_identity import result_config
from pipelines.job.clustering.clustered_rows import DealtRow, from_values, to_table
from pipelines.job.context import PreparedRecord
from pipelines.job.prepare_stage import input_hash
from tests.examples import examples
from tests.tables import table

SCHEMAS = {"Shoes": CategorySchema(category="Shoes", attributes=(Attribute(name="Brand"),))}
HTML = "<ul><li>Size: <b>42</b>&nbsp;EU</li><li>Tom &amp; Jerry</li></ul>"


def take(title: Any, text: Any, **options: Any) -> Record | RowRefusal:
    config = InputConfig(path=("x",), fields={"title": "name", "text": "body"}, **options)
    return to_record({"category": "Shoes", "name": title, "body": text}, "f:0", config, SCHEMAS)


def test_a_record_has_the_texts_that_its_fields_show() -> None:
    record = take("R&D <M>", HTML)
    assert isinstance(record, MarkedUpRecord)
    assert record.fields == {"title": "R&D <M>", "text": "Size: 42\u00a0EU\nTom & Jerry"}
    assert record.originals == {"text": HTML}
    assert pickle.loads(pickle.dumps(record)) == record
    assert take("R&D <M>", HTML, html="never") == Record("f:0", "Shoes", {"title": "R&D <M>", "text": HTML})
    assert take("R&D <M>", "a", html="always") == MarkedUpRecord(
        "f:0", "Shoes", {"title": "R&D", "text": "a"}, {"title": "R&D <M>"}
    )


@table(
    "text",
    [
        *("", " \t\r\n", "\u00a0", "\u200b", "\u200d\u200c", "\ufeff", "\u00ad\u00ad", "\u3164 \uffa0", "\u115f\u1160"),
        *("\ufe0f\ufe0e", "\U000e0100", "\u202e\u2066\u200f", "\U000e0041\U000e007f", "\x00\x1f\x7f\x85", "\u2800"),
        *(
            "\u034f\u2060\u2063",
            "\u3000\u2003",
            "\u180e\u17b4",
            "\ufffc",
            "<p></p>",
            "<p>&nbsp;</p>",
            "<br><br/>",
            "&#8203;",
        ),
        *("<!-- 5 kg -->", "<style>p {}</style>", "<img src='x.png' alt='y'>", "&shy;", "<p>\u200b</p>"),
    ],
)
def test_what_nobody_sees_is_no_text(text: str) -> None:
    refusal = take(None, text)
    assert isinstance(refusal, RowRefusal)
    assert (refusal.code, refusal.message) == ("no_text", "every text column is empty: name, body")
    assert take("t", text) == Record("f:0", "Shoes", {"title": "t", "text": ""})


@given(st.text(max_size=8))
@settings(max_examples=examples(200))
def test_letters_and_digits_are_seen(text: str) -> None:
    shows = any(
        unicodedata.category(char)[0] in "LNPS" and char not in "\u115f\u1160\u3164\uffa0\u2800\ufffc" for char in text
    )
    if shows:
        assert shown_text(text, "never") == text


def test_evidence_is_what_stands_in_the_catalog() -> None:
    record = shown_record(Record("1", "Shoes", {"title": "Tom", "text": HTML}), "auto")
    grounder, brand = Grounder(record.fields), Attribute(name="Brand")
    found = {"Brand": (grounder.find(brand, "Tom & Jerry"), grounder.find(brand, "42 EU")), "Made": ((),)}
    placed = original_places(record, found, "auto")
    (jerry,), (size,) = placed["Brand"]
    assert (jerry.field, jerry.text) == ("text", "Tom &amp; Jerry")
    assert (size.text, size.match) == ("42</b>&nbsp;EU", "folded")
    for place in (jerry, size):
        assert HTML[place.start : place.end] == place.text
    assert placed["Made"] == ((),)
    plain = {"Brand": (grounder.find(brand, "Tom"),)}
    assert original_places(record, plain, "auto")["Brand"][0][0] == Evidence("title", 0, 3, "Tom", "exact")
    assert original_places(Record("1", "c", {}), plain, "auto") is plain


def test_the_input_hash_is_of_what_is_read_and_of_where_it_stands() -> None:
    def of(text: str, mode: Any = "auto") -> str:
        return input_hash(shown_record(Record("1", "Shoes", {"text": text}), mode))

    assert of("soft", "never") == of("soft") == of("soft", "always"), "without HTML nothing changes"
    # The same is read in all of them, but evidence is elsewhere, or is another text.
    assert len({of("soft"), of("<p>soft</p>"), of("<b>soft</b> "), of("<p>soft</p>", "never")}) == 4


def test_a_dealt_row_keeps_the_original() -> None:
    record = shown_record(Record("1", "Shoes", {"title": "t", "text": HTML}), "auto")
    prepared = PreparedRecord(0, 3, record, input_hash(record))
    (values,) = to_table([DealtRow(prepared, 0, "Shoes", 0, 0)]).to_pylist()
    assert from_values(values) == prepared
    plain = PreparedRecord(0, 3, Record("1", "Shoes", {"title": "t"}), "0")
    (values,) = to_table([DealtRow(plain, 0, "Shoes", 0, 0)]).to_pylist()
    assert from_values(values) == plain


def test_how_html_is_read_decides_results() -> None:
    def settings_of(**options: Any) -> dict[str, Any]:
        read = InputConfig(path=("x",), fields={"t": "t"}, **options)
        return dict(result_config(JobConfig(input=read, schemas="s", output="o"))["input"])

    assert settings_of()["html"] == "auto"
    assert settings_of(html="always")["html"] == "always"
    assert "html" not in settings_of(html="never"), "as runs were before there was a choice"
