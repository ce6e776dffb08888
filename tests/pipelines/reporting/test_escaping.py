"""Nothing of a catalog or a model becomes markup, Markdown or a link."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from pipelines.reporting import formats
from pipelines.reporting.page import render_html
from pipelines.reporting.report_facts import Facts
from tests.pipelines.reporting.made_runs import HOSTILE, hostile_products, metrics, write_run
from tests.pipelines.reporting.reports import facts_of
from tests.tables import table


class Page(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    engine = {"model_id": HOSTILE[0], "adapter_id": HOSTILE[2], "layout": "tree", "versions": {HOSTILE[1]: HOSTILE[4]}}
    products = hostile_products()
    rows = [metrics(0, 10, busy_seconds=9.0, price_source=HOSTILE[3], price_per_hour=1.0, instance_type=HOSTILE[0])]
    return facts_of(write_run(tmp_path_factory.mktemp("hostile"), [products], rows, engine=engine))


def test_nothing_of_a_hostile_catalog_becomes_markup(hostile: Facts) -> None:
    page = render_html(hostile)
    tags = Page(page).tags
    assert [tag for tag, _ in tags].count("script") == 1
    assert [tag for tag, _ in tags].count("style") == 1
    assert not {tag for tag, _ in tags} & {"img", "iframe", "base", "form", "object", "embed", "foreignobject"}
    for tag, attributes in tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", "the policy would refuse it"
            assert name != "srcdoc"
            if name in ("href", "src", "action", "xlink:href"):
                assert value is not None
                assert value.startswith("#") or value == "data:,", (tag, name, value)
            # No text of the catalog or the model stands in an attribute, however well it is escaped.
            assert "hacked" not in (value or ""), (tag, name)
            assert "evil" not in (value or ""), (tag, name)
    assert "{{ 7 * 7 }}" in page, "a template's signs are text, too"
    assert not any(character in page for character in "\x00\x07\x9b\u202e\u2066\u2069\ufeff\u2028")
    assert "U+202E" in page


@table(
    ("text", "expected"),
    [
        ("see https://evil.example/a", "see https:<!-- -->//evil.example/a"),
        ("HTTP://evil.example", "HTTP:<!-- -->//evil.example"),
        ("WWW.evil.example and www.evil.example", "WWW<!-- -->.evil.example and www<!-- -->.evil.example"),
        ("a@evil.example", "a@<!-- -->evil.example"),
        ("<https://evil.example>", "&lt;https:<!-- -->//evil.example\\>"),
        ("a www b: // c", "a www b: // c"),
    ],
)
def test_no_address_of_a_catalog_becomes_a_link(text: str, expected: str) -> None:
    assert formats.markdown(text) == expected
