"""`hpd plan` of a cascade: a pilot in which both models answer."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from pipelines.reporting.cost_plan import Planner
from pipelines.reporting.forecast import Forecast
from pipelines.reporting.forecast_text import forecast_json, print_forecast
from tests.pipelines.conftest import Workplace, products


def planner(cascade: Workplace, below: float, **changes: Any) -> Planner:
    whole = {**cascade.changes["cascade"], "below": below}
    path = cascade.write_config(cascade=whole, cost={"usd_per_hour": 36.0}, **changes)
    return Planner.open(str(path), [], None, None, None, Console(file=io.StringIO()))


def test_both_models_are_priced(cascade: Workplace) -> None:
    cascade.write_parquet("a.parquet", products(60))
    found = planner(cascade, 0.05).from_pilot(30, None)
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

    shown = Console(file=io.StringIO(), width=120)
    print_forecast(shown, found, [1.0], "place")
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "The larger model is asked again for" in text
    assert len(forecast_json(found, [1.0], "place")["deadlines_of_larger"]) == 1
