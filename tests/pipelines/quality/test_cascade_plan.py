"""`hpd plan` of a cascade: a pilot in which both models answer, for every threshold. Two runs, some seconds each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.quality.curve import Curve
from pipelines.reporting.cost_plan import Planner
from pipelines.reporting.forecast import Forecast, Interval
from pipelines.reporting.forecast_text import forecast_json, print_curve, print_forecast
from tests.pipelines.conftest import Workplace, products, read_table


def planner(cascade: Workplace, below: float, **changes: Any) -> Planner:
    whole = {**cascade.changes["cascade"], "below": below}
    path = cascade.write_config(cascade=whole, cost={"usd_per_hour": 36.0}, **changes)
    return Planner.open(str(path), [], None, None, None, Console(file=io.StringIO()))


def write_gold(cascade: Workplace, run: Path) -> str:
    """Labels by which the larger model is always right: what it says is what is labelled."""
    lines = []
    for row in read_table(run, "products"):
        values = {name: None if text is None else [text] for name, text in row["values"] if name != "Sizes"}
        lines.append({"product_id": row["product_id"], "category": row["category"], "values": values})
    path = cascade.folder / "gold.jsonl"
    path.write_text("\n".join(map(json.dumps, lines[::2])) + "\n")
    return str(path)


def test_both_models_are_priced_and_a_threshold_is_found(cascade: Workplace) -> None:
    cascade.write_parquet("a.parquet", products(60))
    found = planner(cascade, 0.05).from_pilot(30, 0, 0, None)
    assert found.larger is not None
    assert found.asked is not None
    assert 0 < found.asked.answers.estimate < 1
    for total, (one, other) in (
        (found.billed_hours, (found.alone.billed_hours, found.larger.billed_hours)),
        (found.usd, (found.alone.usd, found.larger.usd)),
    ):
        assert total is not None
        assert one is not None
        assert other is not None
        assert total.estimate == pytest.approx(one.estimate + other.estimate)
    # Two engines share a machine without GPUs.
    assert found.price.usd_per_hour == found.larger.price.usd_per_hour == 18.0
    assert found.larger.model == found.model
    assert Forecast.from_json(json.loads(found.to_json()), "here") == found

    # The same pilot for another threshold: nothing is run again, and the larger model has more to do.
    pilot = Path(cascade.folder / "out.pilot")
    stamp = (pilot / "run/manifest.json").stat().st_mtime_ns
    again = planner(cascade, 1.0)
    dearer = again.from_pilot(30, 0, 0, None)
    assert (pilot / "run/manifest.json").stat().st_mtime_ns == stamp
    assert dearer.larger is not None
    assert dearer.asked is not None
    assert dearer.asked.answers == Interval(1, 1, 1)
    assert dearer.larger.work_hours.estimate > found.larger.work_hours.estimate

    curve = again.curve(write_gold(cascade, pilot / "run"), None)
    assert curve.larger.f1.value == 1.0
    assert curve.first.f1.value < 1
    assert [point.asked for point in curve.points] == sorted(point.asked for point in curve.points)
    f1 = [point.f1.value for point in curve.points]
    assert f1 == sorted(f1)
    assert f1[-1] == 1.0
    assert Curve.from_dict(json.loads((pilot / "cascade.json").read_text())) == curve
    cheapest = curve.reaching(1.0)
    assert cheapest is not None
    assert cheapest.cost <= curve.points[-1].cost

    shown = Console(file=io.StringIO(), width=120)
    print_forecast(shown, found, [1.0], "place")
    print_curve(shown, curve, 1.0, "place")
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "The larger model is asked again for" in text
    assert "The cheapest way to F1 1" in text
    assert len(forecast_json(found, [1.0], "place")["deadlines_of_larger"]) == 1
