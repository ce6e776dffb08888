"""The page stands alone, shows hostile texts as texts, and has an end."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from hpd_core import Attribute
from tests.pipelines.evaluating.comparisons import ask
from tests.pipelines.evaluating.made_runs import Row, write_run

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
