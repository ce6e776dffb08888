"""Doubtful and ungrounded answers of a category, counted."""

from __future__ import annotations

from pathlib import Path

from pipelines.reporting.page import render_html, render_markdown
from tests.pipelines.reporting.made_runs import Answer, Product, write_run
from tests.pipelines.reporting.reports import change_answers, facts_of


def test_an_answer_of_several_values_is_ungrounded_once(tmp_path: Path) -> None:
    answers = {"Notes": Answer(["plum", "cocoa", "smoke", "honey"], 0.3), "Brand": Answer("Acme", 0.9)}
    products = [Product(f"p{n}", {"title": "Acme, plum"}, answers) for n in range(2)]
    (category,) = facts_of(write_run(tmp_path, [products])).categories
    assert (category.values, category.ungrounded, category.doubtful) == (4, 2, 2)


def test_what_an_older_run_does_not_say_is_no_zero(run: Path) -> None:
    change_answers(run, evidence=None, logprob_mean=None)
    facts = facts_of(run)
    by_name = {each.category: (each.doubtful, each.ungrounded) for each in facts.categories}
    # A truth value of the shoes is never ungrounded: that is known.
    assert by_name == {"Coffee": (None, None), "Shoes": (None, 0)}
    row = next(line for line in render_markdown(facts).splitlines() if line.startswith("| Coffee |"))
    assert [cell.strip() for cell in row.split("|")][5:7] == ["–", "–"]
    assert render_html(facts)
