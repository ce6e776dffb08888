"""The page stays readable, whatever there is much of; the JSON has all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from pipelines.reporting import formats
from pipelines.reporting.page import render_html, render_json
from tests.pipelines.reporting.reports import facts_of, page_text


def test_many_categories_do_not_make_a_page_without_end(decoded_run: Path) -> None:
    facts, found = facts_of(decoded_run), []
    first = facts.categories[0]
    for number in range(5000):
        found.append(dataclasses.replace(first, category=f"Category {number}"))
    facts = dataclasses.replace(facts, categories=tuple(found))
    shown = page_text(facts)
    assert shown.count("Category 299 ") == 2
    assert "Category 300 " not in shown
    assert shown.count("4,700 others") == 2
    assert formats.number(4700 * first.products) in shown
    assert formats.usd(4700 * (first.usd or 0)) in shown
    assert "All are in report.json." in shown
    assert len(render_html(facts)) < 600_000
    assert len(json.loads(render_json(facts))["categories"]) == 5000
