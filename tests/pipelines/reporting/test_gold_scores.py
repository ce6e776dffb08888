"""A run scored against gold, and what gold says of each value."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.reporting.page import render_html
from tests.pipelines.reporting.reports import facts_of, write_gold


def test_scores_and_what_gold_says_of_each_value(run: Path, tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Chile", "c3": None, "c2": "Peru"})
    facts = facts_of(run, gold=str(gold))
    quality = facts.quality
    assert quality is not None
    # c0 right, c1 wrong, c3 made up, c2 dead-lettered: VC 1, VW 1, NV 1, VN 1.
    assert quality.precision.value == pytest.approx(1 / 3)
    assert quality.recall.value == pytest.approx(1 / 3)
    assert quality.f1.value == pytest.approx(1 / 3)
    assert quality.f1.low <= quality.f1.value <= quality.f1.high
    by_name = {category.category: category.f1 for category in facts.categories}
    assert by_name == {"Coffee": pytest.approx(1 / 3), "Shoes": None}
    verdicts = {
        product.product_id: [(value.gold, value.is_right) for value in product.values if value.attribute == "Origin"]
        for product in facts.sample.products
    }
    assert verdicts["c0"] == [("Peru", True)]
    assert verdicts["c1"] == [("Chile", False)]
    assert verdicts["c3"] == [("(absent)", False)]
    page = render_html(facts)
    assert f"{quality.f1.value:.3f}" in page
    assert "wrong" in page
    too_narrow = ", too narrow: of 4 products alone"
    assert page.count(too_narrow) == 2
