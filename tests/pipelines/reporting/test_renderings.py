"""The page, the JSON and the Markdown hold the same, whatever there is much of."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from pipelines.reporting import formats
from pipelines.reporting.page import render_html, render_json, render_markdown
from tests.pipelines.reporting.reports import change_answers, facts_of, page_text, write_gold


@pytest.mark.parametrize("is_decided", [True, False])
@pytest.mark.parametrize("has_gold", [True, False])
def test_each_line_of_a_markdown_table_has_as_many_cells(
    decoded_run: Path, tmp_path: Path, is_decided: bool, has_gold: bool
) -> None:
    if is_decided:
        change_answers(decoded_run, decision="accept")
    gold = str(write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Chile"})) if has_gold else None
    text = render_markdown(facts_of(decoded_run, gold=gold))
    assert ("| can be taken | to review |" in text) == is_decided
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) > 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table if line.startswith("|")}) == 1, table[:3]


def test_many_categories_do_not_make_a_page_without_end(decoded_run: Path) -> None:
    facts, found = facts_of(decoded_run), []
    first = facts.categories[0]
    for number in range(5000):
        found.append(dataclasses.replace(first, category=f"Category {number}"))
    facts = dataclasses.replace(facts, categories=tuple(found))
    page, text = page_text(facts), render_markdown(facts)
    for shown in (page, text):
        assert shown.count("Category 299 ") == 2
        assert "Category 300 " not in shown
        assert shown.count("4,700 others") == 2
        assert formats.number(4700 * first.products) in shown
        assert formats.usd(4700 * (first.usd or 0)) in shown
        assert "All are in report.json." in shown
    assert len(render_html(facts)) < 600_000
    assert len(json.loads(render_json(facts))["categories"]) == 5000
