"""What a plan says of a price: of what machine it is, in which region, and what it leaves out."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pipelines.costing.forecast import Forecast, Price
from pipelines.costing.forecast_builder import on_other_machine
from pipelines.costing.forecast_text import print_forecast
from pipelines.costing.machines import find_gpu, unlike_machine
from tests.pipelines.costing.forecasts import forecast, job
from tests.tables import table


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


@table(
    ("price", "said"),
    [
        (Price(None, None), "set cost.usd_per_hour, or cost.instance_type and cost.market, for dollars"),
        (Price(None, None, "g6e.48xlrage"), "the price table has no 'g6e.48xlrage' (there is g6e.48xlarge): set"),
        (Price(None, None, "p5e.48xlarge", "on-demand"), "the price table has no on-demand price of p5e.48xlarge: set"),
        (Price(None, None, "g6e.48xlarge"), "it is not known what g6e.48xlarge is bought as: set cost.market to"),
        (Price(None, None, "g6e.48xlarge", "spot"), "the price table has g6e.48xlarge in us-east-1 alone: set"),
    ],
)
def test_why_there_are_no_dollars(price: Price, said: str) -> None:
    assert said in printed(forecast(price=price))


def test_the_price_of_one_machine_and_the_time_of_another() -> None:
    price = Price(1.3, "table", "g6e.48xlarge", "spot", 8)
    assert unlike_machine(price, "NVIDIA L40S") is None
    assert unlike_machine(Price(1.3, "configuration"), "cpu, 2 cores") is None
    said = unlike_machine(price, "cpu, 2 cores")
    assert said is not None
    assert said.startswith("g6e.48xlarge (8 x L40S) takes as long as cpu, 2 cores, which was measured")
    assert "--on g6e.48xlarge assumes what it really takes" in said
    of_no_sheet = unlike_machine(Price(1.3, "table", "g7e.48xlarge", "spot", 8), "NVIDIA L40S")
    assert of_no_sheet is not None
    assert "a pilot there measures" in of_no_sheet


def test_a_machine_that_was_not_measured_is_not_said_to_be() -> None:
    size = {"layer_parameters": 8_000_000_000, "head_parameters": 500_000_000, "weight_bytes": 17_000_000_000}
    measured = forecast(device="cpu, 2 cores", utilisation_source="measured")
    moved = on_other_machine(measured, job(), {"model_size": size}, find_gpu("g6e.48xlarge"), 0.4)
    assert (moved.device, moved.measured_on) == ("L40S", "cpu, 2 cores")
    said = printed(moved)
    assert "in 20 batches on cpu, 2 cores" in said
    assert "utilisation is as on cpu, 2 cores" in said
