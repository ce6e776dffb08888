"""The page stands alone, shows hostile texts as texts, and has an end."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from hpd_core import Attribute
from pipelines.comparing.comparison import compare_runs
from pipelines.comparing.pages import render_html, render_markdown
from tests.pipelines.browser import Page
from tests.pipelines.comparing.comparisons import ask
from tests.pipelines.comparing.made_runs import Row, write_run
from tests.tables import table

HOSTILE = "<script>alert(1)</script> {{ 7 * 7 }} \" onload=x ' | `a` </style> \u202eevil \x00"


class Tags(HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs


def hostile_pair(folder: Path) -> tuple[str, str]:
    row = {"id": HOSTILE, "text": HOSTILE, "category": HOSTILE}
    schemas = [{HOSTILE: [Attribute(name="Brand", description=text)]} for text in (HOSTILE, "plain")]
    return (
        write_run(folder / "a", [Row(answers={"Brand": HOSTILE}, **row)], run_id=HOSTILE, schemas=schemas[0]),
        write_run(
            folder / "b",
            [Row(answers={"Brand": "Kona"}, **row)],
            schemas=schemas[1],
            files={"catalog.parquet": "f2", HOSTILE: "x"},
            config={"model": HOSTILE},
        ),
    )


def test_the_page_stands_alone_and_hostile_texts_are_texts(tmp_path: Path) -> None:
    a, b = hostile_pair(tmp_path)
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps({"product_id": HOSTILE, "category": HOSTILE, "values": {"Brand": [HOSTILE]}}))
    code, text, error = ask(a, b, "--gold", str(gold), "--out", str(tmp_path / "out"))
    assert code == 0, error
    assert "\x00" not in text
    page = (tmp_path / "out" / "compare.html").read_text()
    found = Tags()
    found.feed(page)
    assert found.tags["script"] == 0
    assert found.tags["style"] == 1
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert {name for name, _ in found.attributes if name.startswith("on")} == set()
    assert {value for name, value in found.attributes if name in ("src", "href")} <= {
        "data:,",
        "#main",
        "#changes",
        "#runs",
        "#rows",
        "#agreement",
        "#attributes",
        "#quality",
        "#cost",
        "#examples",
    }
    policies = [value for name, value in found.attributes if name == "content" and value and "default-src" in value]
    assert policies
    assert policies[0].startswith("default-src 'none'; style-src 'sha256-")
    markdown = (tmp_path / "out" / "compare.md").read_text()
    assert "<script>" not in markdown
    assert "`" not in markdown.replace("\\`", "")
    data = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert data["examples"][0]["a"]["items"][0]["text"] == HOSTILE
    assert data["examples"][0]["right"] == "a"


@table(("width", "dark"), [(1200, False), (390, True)])
def test_the_page_in_a_browser(browser: Page, tmp_path: Path, width: int, dark: bool) -> None:
    a, b = hostile_pair(tmp_path)
    assert ask(a, b, "--out", str(tmp_path / "out"))[0] == 0
    browser.open(tmp_path / "out" / "compare.html", width=width, dark=dark)
    assert [request for request in browser.requests if not request.startswith("data:")] == []
    assert (browser.complaints, browser.dialogs) == ([], [])
    assert browser.evaluate("document.querySelectorAll('article.example').length") == 1
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.evaluate("getComputedStyle(document.querySelector('.card')).borderRadius") == "10px"


def test_long_lists_do_not_make_a_page_without_end(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "x", "Old": "y"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": "y"})])
    found = compare_runs(a, b)
    category, (brand, old) = found.by_category[0], found.by_attribute
    assert (brand.attribute, old.attribute) == ("Brand", "Old")
    assert found.settings.schemas is not None
    many = dataclasses.replace(
        found,
        by_category=[dataclasses.replace(category, category=f"Category {n}") for n in range(3000)],
        by_attribute=[dataclasses.replace(old, category=f"Category {n}") for n in range(3000)],
        settings=dataclasses.replace(
            found.settings, schemas=list(found.settings.schemas) * 3000, files=["a file has changed"] * 3000
        ),
    )
    page, text = render_html(many), render_markdown(many)
    for shown in (page, text):
        assert "2,500 others" in shown
        assert "Category 500<" not in shown
        assert "Category 500 " not in shown
        assert "all are in compare.json" in shown
    assert page.count("2,500 others") == 2
    assert len(page) < 500_000
    assert len(text) < 100_000
