"""The forecast beside what came true, and where no verdict can be given."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pipelines.reporting.page import render_html
from tests.pipelines.reporting.reports import change_metrics, facts_of, forecast, verdicts


def test_the_forecast_beside_what_came_true(decoded_run: Path) -> None:
    run = decoded_run
    place = run.with_name("run.pilot")
    place.mkdir()
    (place / "forecast.json").write_bytes(forecast(dead_rows=1).to_json())
    facts = facts_of(run)
    expected = facts.forecast
    assert expected is not None
    assert expected.is_comparable
    lines = {line.what: line for line in expected.lines}
    cost = lines["Cost"]
    # Fixed: 2 engines x (15 s + 3 s / 0.5) = 42 s; work: 99 / 0.5 = 198 s, 180 to 200.
    assert (cost.estimate, cost.low, cost.high) == pytest.approx((0.240, 0.222, 0.242))
    assert (cost.actual, cost.is_inside) == (pytest.approx(0.18), False)
    work = lines["of them computing for products"]
    assert (work.actual, work.is_inside) == (pytest.approx(99 / 3600), True), "busy less the prefixes"
    assert lines["Engine hours"].actual == pytest.approx(180 / 3600)
    by_row = lines["Cost of 1,000 rows that can be extracted"]
    assert (by_row.estimate, by_row.actual) == pytest.approx((0.24 / 6 * 1000, 0.18 / 6 * 1000)), (
        "of seven, one is empty"
    )
    page = render_html(facts)
    assert ">outside<" in page
    assert ">inside<" in page
    assert "engines wait half of their time" in page
    # Priced afterwards, both sides are.
    repriced = {line.what: line for line in facts_of(run, usd_per_hour=36.0).forecast.lines}  # type: ignore[union-attr]
    assert (repriced["Cost"].estimate, repriced["Cost"].actual) == pytest.approx((2.4, 1.8))


def test_no_verdict_where_the_run_is_another_one_than_was_forecast(decoded_run: Path) -> None:
    assert verdicts(decoded_run, forecast())[1] == {True, False}
    found, inside = verdicts(decoded_run, dataclasses.replace(forecast(), device="a large GPU"))
    assert (found.is_comparable, inside) == (False, {None}), "another machine"
    change_metrics(decoded_run, 0, price_per_hour=None)
    found, inside = verdicts(decoded_run, forecast())
    assert (found.is_comparable, inside) == (False, {None}), "some shards' dollars"
    assert any("lack metrics or a price" in note for note in found.notes)
    by_row = next(line for line in found.lines if line.what.startswith("Cost of 1,000"))
    assert by_row.actual is None, "some shards' dollars by all shards' rows"
