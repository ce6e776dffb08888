"""Values are marked where they stand, in any script; a long text is cut, and nothing else is lost."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipelines.reporting.facts.sample import Segment
from pipelines.reporting.highlight import Mark, cut
from pipelines.reporting.page import render_html
from tests.pipelines.reporting.made_runs import Answer, Product, write_run
from tests.pipelines.reporting.reports import facts_of
from tests.tables import table

UNICODE = [
    ("حذاء رياضي أحمر من نايكي مقاس 42", "نايكي"),
    ("נעלי ריצה אדומות Velor 42 לגברים", "אדומות"),
    ("👩‍👩‍👧‍👦 family pack 🏴󠁧󠁢󠁥󠁮󠁧󠁿 Acme 👍🏽", "Acme"),
    (unicodedata.normalize("NFD", "Café crème Straße déjà"), unicodedata.normalize("NFD", "crème")),
    ("赤いランニングシューズ、メンズ、26cm", "赤い"),
    ("กาแฟคั่วเข้ม 250 กรัม", "คั่วเข้ม"),
    ("𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁 Blue", "Blue"),
]


@table("file_format", ["jsonl", "parquet"])
def test_values_are_marked_where_they_stand_in_any_script(tmp_path: Path, file_format: str) -> None:
    products = [
        Product(f"u{index}", {"title": "nothing", "description": f"{text}, {text}"}, {"Brand": Answer(value)})
        for index, (text, value) in enumerate(UNICODE)
    ]
    run = write_run(tmp_path, [products[:3], products[3:]], file_format=file_format)
    facts = facts_of(run)
    assert len(facts.sample.products) == len(UNICODE)
    for product in facts.sample.products:
        text, value = UNICODE[int(product.product_id.removeprefix("u"))]
        assert product.fields is not None
        title, description = product.fields
        assert [segment.text for segment in title.segments] == ["nothing"]
        assert "".join(segment.text for segment in description.segments) == f"{text}, {text}"
        marked = [segment.text for segment in description.segments if segment.values]
        assert marked == [value, value], "every occurrence"
    assert render_html(facts).count("<mark ") >= 2 * len(UNICODE)


def test_overlapping_values_share_their_characters() -> None:
    segments = cut("red shoe now", [Mark(0, 8, 0, "folded"), Mark(0, 3, 1, "exact"), Mark(4, 8, 2, "fuzzy")])
    assert segments == (
        Segment("red", (1, 0), "exact"),
        Segment(" ", (0,), "folded"),
        Segment("shoe", (2, 0), "folded"),
        Segment(" now"),
    )


@given(st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5)), max_size=8))
def test_cutting_loses_nothing(text: str, places: list[tuple[int, int, int]]) -> None:
    marks = [Mark(s, min(len(text), s + n), value, "exact") for s, n, value in places if s < len(text)]
    segments = cut(text, marks)
    assert "".join(segment.text for segment in segments) == text
    position = 0
    for segment in segments:
        here = {mark.value for mark in marks if mark.start <= position < mark.end}
        assert set(segment.values) == here
        position += len(segment.text)


def test_the_middle_of_a_long_text_is_left_out() -> None:
    (before, omitted, after, marked, rest) = cut("a" * 5000 + "Acme" + "b" * 10, [Mark(5000, 5004, 0, "exact")])
    assert (len(before.text), omitted.omitted, len(after.text)) == (400, 4200, 400)
    assert (marked.text, rest.text) == ("Acme", "b" * 10)
