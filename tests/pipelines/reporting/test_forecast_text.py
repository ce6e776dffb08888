"""What a plan says of a price: of what machine it is, in which region, and what it leaves out."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pipelines.reporting.forecast import Forecast, Price
from pipelines.reporting.forecast_text import print_forecast
from tests.pipelines.reporting.forecasts import forecast


def printed(found: Forecast) -> str:
    shown = io.StringIO()
    print_forecast(Console(file=shown, width=200), found, [8.0], "f.json")
    return shown.getvalue()


def test_nodes_that_engines_do_not_fill_are_paid_as_a_whole() -> None:
    one = forecast(engines=1)
    assert one.usd is not None
    assert one.usd_of_nodes is not None
    # 80 hours at work, 0.1 of loading, at $3 an engine; seven more places of the node stand idle.
    assert one.usd.estimate == pytest.approx(3.0 * 80.1)
    assert one.usd_of_nodes.estimate == pytest.approx(8 * 3.0 * 80.1)
    assert "  nodes        $1,922 [$1,682, $2,162] as a whole" in printed(one)
    twelve = forecast(engines=12).usd_of_nodes
    assert twelve is not None
    assert twelve.estimate == pytest.approx(16 * 3.0 * (80 / 12 + 0.1))
    both = replace(one, larger=forecast(engines=7))
    for full in (forecast(engines=8), forecast(engines=16), both, forecast(engines=1, price=Price(None, None))):
        assert full.usd_of_nodes is None
