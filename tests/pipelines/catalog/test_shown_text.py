"""A record's texts are those that a field shows, and evidence has its places where they stand in the catalog."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Record
from pipelines.catalog.html_text import shown_record, shown_text
from pipelines.config.catalog_input import InputConfig
from pipelines.config.extraction import JobConfig, result_config
from pipelines.job.prepare_stage import input_hash
from tests.examples import examples

HTML = "<ul><li>Size: <b>42</b>&nbsp;EU</li><li>Tom &amp; Jerry</li></ul>"


@given(st.text(max_size=8))
@settings(max_examples=examples(200))
def test_letters_and_digits_are_seen(text: str) -> None:
    shows = any(
        unicodedata.category(char)[0] in "LNPS" and char not in "\u115f\u1160\u3164\uffa0\u2800\ufffc" for char in text
    )
    if shows:
        assert shown_text(text, "never") == text


def test_the_input_hash_is_of_what_is_read_and_of_where_it_stands() -> None:
    def of(text: str, mode: Any = "auto") -> str:
        return input_hash(shown_record(Record("1", "Shoes", {"text": text}), mode))

    assert of("soft", "never") == of("soft") == of("soft", "always"), "without HTML nothing changes"
    # The same is read in all of them, but evidence is elsewhere, or is another text.
    assert len({of("soft"), of("<p>soft</p>"), of("<b>soft</b> "), of("<p>soft</p>", "never")}) == 4


def test_how_html_is_read_decides_results() -> None:
    def settings_of(**options: Any) -> dict[str, Any]:
        read = InputConfig(path=("x",), fields={"t": "t"}, **options)
        return dict(result_config(JobConfig(input=read, schemas="s", output="o"))["input"])

    assert settings_of()["html"] == "auto"
    assert settings_of(html="always")["html"] == "always"
    assert "html" not in settings_of(html="never"), "as runs were before there was a choice"
