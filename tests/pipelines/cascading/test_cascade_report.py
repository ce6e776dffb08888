"""The report of a run of two models: what both cost adds up, and F1 stands against cost."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cascading.curve import CURVE_NAME
from pipelines.reporting.gather_facts import ReportWishes, gather
from pipelines.reporting.page import render_html, render_json, render_markdown
from pipelines.store.tables import to_table
from tests.pipelines.cascading.test_curve import example
from tests.pipelines.reporting.made_runs import Answer, Product, metrics, write_run

ASKED = {"answers": 2, "products": 1, "asked": 1, "replaced": 1, "changed": 1, "kept": 0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two shards of a product each: the first model's engine costs $1 an hour, the larger one's $10."""
    products = [Product(f"p{n}", {"title": "red"}, {"Colour": Answer("red")}, seconds=1.0) for n in range(2)]
    first = [metrics(0, 100, busy_seconds=60.0, price_per_hour=1.0) for _ in products]
    run = write_run(tmp_path, [[each] for each in products], first)
    plan = json.loads((run / "_plan.json").read_text())
    plan["result_config"]["cascade"] = {"model": "large", "adapter": None, "below": 0.35}
    (run / "_plan.json").write_text(json.dumps(plan))
    for index in range(2):
        name = f"part-{index:06d}.parquet"
        zero = dict.fromkeys(("num_rows", "num_products", "num_dead_letters", "num_carried"), 0)
        second = metrics(0, 100, busy_seconds=36.0, price_per_hour=10.0, actor_id="actor-2")
        second |= {"run_id": "run-1", "shard": index, "pass": 2, **zero, "billed_seconds": 50.0}
        path = run / "metrics" / name
        pq.write_table(pa.concat_tables([pq.read_table(path), to_table("metrics", [second])]), path)
        path = run / "products" / name
        rows = pq.read_table(path).to_pylist()
        pq.write_table(to_table("products", [row | {"cascade_seconds": 3.0} for row in rows]), path)
        manifest = json.loads((run / "_shards" / f"{index:06d}.json").read_text())
        manifest["counts"]["cascade"] = ASKED
        (run / "_shards" / f"{index:06d}.json").write_text(json.dumps(manifest))
    return run


def test_both_models_engines_are_in_the_account(run: Path) -> None:
    facts = gather(str(run), ReportWishes())
    account = facts.account
    assert account is not None
    assert account.money is not None
    assert (account.shards, account.missing, account.rows, account.decoded, account.engines) == (2, 0, 2, 2, 2)
    assert account.time.busy == 192.0
    assert account.time.billed == 300.0
    assert account.money.billed == pytest.approx((2 * 100 * 1 + 2 * 50 * 10) / 3600)
    assert account.money.useful == pytest.approx((2 * 60 * 1 + 2 * 36 * 10) / 3600)
    assert account.money.shards == 2
    (category,) = facts.categories
    assert category.engine_seconds == 8.0
    assert not any("missing" in note or "price" in note for note in facts.notes)


def test_without_a_curve_it_says_how_to_make_one(run: Path) -> None:
    facts = gather(str(run), ReportWishes())
    assert facts.cascade is not None
    assert (facts.cascade.answers, facts.cascade.asked, facts.cascade.changed) == (4, 2, 2)
    page = render_html(facts)
    assert "2 of 4 answers (50.0%), those less certain than 0.350, were asked again of" in page
    assert "--gold GOLD.jsonl" in page
    assert "F1 against cost" not in page


def test_the_curve_is_drawn_with_the_runs_own_threshold_marked(run: Path) -> None:
    pilot = Path(f"{run}.pilot")
    pilot.mkdir()
    curve = example(larger_hours=10)
    (pilot / CURVE_NAME).write_text(json.dumps(curve.to_dict()))
    facts = gather(str(run), ReportWishes())
    assert facts.cascade is not None
    assert facts.cascade.nearest == 2, "0.4 is closest to 0.35; the first model alone comes before the thresholds"
    page = render_html(facts)
    assert "<title>F1 against cost</title>" in page
    assert page.count('<circle class="good"') == 1
    assert "below 0.4" in page
    assert "| 3 | below 0.4 |" in render_markdown(facts)
    assert json.loads(render_json(facts))["cascade"]["curve"]["best"]["below"] == 0.4


def test_a_damaged_curve_is_left_out_and_said(run: Path) -> None:
    pilot = Path(f"{run}.pilot")
    pilot.mkdir()
    (pilot / CURVE_NAME).write_text('{"points": 5}')
    facts = gather(str(run), ReportWishes())
    assert facts.cascade is not None
    assert facts.cascade.curve is None
    assert any("cascade.json is left out" in note for note in facts.notes)
