"""Doubtful and ungrounded answers of a category, counted."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.reporting.made_runs import Answer, Product, write_run
from tests.pipelines.reporting.reports import facts_of


def test_an_answer_of_several_values_is_ungrounded_once(tmp_path: Path) -> None:
    answers = {"Notes": Answer(["plum", "cocoa", "smoke", "honey"], 0.3), "Brand": Answer("Acme", 0.9)}
    products = [Product(f"p{n}", {"title": "Acme, plum"}, answers) for n in range(2)]
    (category,) = facts_of(write_run(tmp_path, [products])).categories
    assert (category.values, category.ungrounded, category.doubtful) == (4, 2, 2)
