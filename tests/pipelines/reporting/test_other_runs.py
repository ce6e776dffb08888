"""Other runs beside the one reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.reporting.page import render_html
from tests.pipelines.reporting.made_runs import metrics, write_run
from tests.pipelines.reporting.reports import coffee, facts_of, write_gold


def test_runs_beside_each_other(run: Path, tmp_path: Path) -> None:
    engine = {"model_id": "other", "layout": "stacked", "adapter_id": "adapters/x"}
    rows = [metrics(0, 10, busy_seconds=9.0, price_per_hour=3.6)]
    other = write_run(tmp_path / "other", [[coffee(0), coffee(1)]], rows, engine=engine)
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Peru"})
    first, second = facts_of(run, compare=[str(other)], gold=str(gold)).compared
    assert (first.is_this, first.layout, first.usd_per_1k) == (True, "tree", pytest.approx(36.0))
    assert (second.is_this, second.layout, second.model, second.adapter) == (False, "stacked", "other", "adapters/x")
    assert (second.usd_per_1k, second.seconds_per_1k, second.products_per_second) == pytest.approx((5.0, 5000, 0.2))
    assert second.f1 is not None
    assert second.f1.value == 1
    page = render_html(facts_of(run, compare=[str(other)], gold=str(gold)))
    assert "Quality over cost" in page
    assert "Quality over cost" not in render_html(facts_of(run, compare=[str(other)]))
