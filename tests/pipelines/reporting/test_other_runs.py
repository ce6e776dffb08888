"""Other runs beside the one reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.reporting.page import render_html, render_json, render_markdown
from tests.pipelines.reporting.made_runs import Product, metrics, write_run
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


def test_what_is_known_of_compared_runs_stands_at_the_top(run: Path, tmp_path: Path) -> None:
    rows = [metrics(0, 10, busy_seconds=9.0, price_per_hour=3.6), metrics(10, 20, busy_seconds=9.0)]
    engine = {"model_id": "tiny", "layout": "tree", "device": "cuda", "device_name": "a GPU"}
    other = write_run(tmp_path / "other", [[coffee(0)], [coffee(1)]], rows, planned_shards=3, engine=engine)
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Peru", "c9": "Peru"})
    facts = facts_of(run, compare=[str(other)], gold=str(gold))
    of_other = [note.removeprefix(f"{other}: ") for note in facts.notes if note.startswith(f"{other}: ")]
    assert of_other[0].startswith("This run is stopped")
    assert of_other[1:3] == [
        "It read other files, or another part of them, than the run of this report.",
        "It ran on a GPU, the run of this report on cpu.",
    ]
    assert not [note for note in facts_of(run, compare=[str(run)]).notes if "run of this report" in note]
    assert "1 of 2 shards have no price: dollars are of the others alone." in of_other
    assert [line.num_scored for line in facts.compared] == [2, 2]
    text = render_markdown(facts)
    (line,) = [line for line in text.splitlines() if line.startswith("|") and str(other).replace("_", "\\_") in line]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[2:9] == ["stopped", "tree", "tiny", "none", "2", "2", "1.000 \\[1.000, 1.000\\]"]


def test_a_compared_run_that_gold_does_not_know_has_a_dash(run: Path, tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru"})
    dead = [Product(None, {"title": ""}, dead=("no_text", "no text")) for _ in range(2)]
    buried = write_run(tmp_path / "buried", [dead], [metrics(0, 10)])
    stranger = write_run(tmp_path / "stranger", [[coffee(7)]], [metrics(0, 10, busy_seconds=9.0)])
    facts = facts_of(run, compare=[str(buried), str(stranger)], gold=str(gold))
    assert [(line.f1 is None, line.num_scored) for line in facts.compared] == [(False, 1), (True, None), (True, None)]
    assert f"{buried}: Not scored: all rows are dead-lettered." in facts.notes
    assert any(note.startswith(f"{stranger}: Not scored: ") and "does not belong" in note for note in facts.notes)
    for render in (render_html, render_markdown, render_json):
        assert render(facts)
    alone = facts_of(buried, gold=str(gold))
    assert alone.quality is None
    assert "Not scored: all rows are dead-lettered." in alone.notes
