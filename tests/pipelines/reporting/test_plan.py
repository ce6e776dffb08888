"""The price of a catalog from a real pilot: real engine, real job, real tables."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hpd_core import Record
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import to_record
from pipelines.catalog.sharding import RowRange
from pipelines.errors import UsageError
from pipelines.plan import app
from pipelines.reporting import cost_plan
from pipelines.reporting.cost_plan import Planner
from pipelines.reporting.forecast import Forecast
from pipelines.reporting.pilot import Pilot, read_measured
from tests.pipelines.conftest import Workplace, product, products, read_table

DEAD = [product(900, category="Hats"), product(901, title="", bullets=[])]


def catalog(workplace: Workplace) -> None:
    workplace.write_jsonl("a.jsonl", [*products(70), "", DEAD[0]])
    workplace.write_parquet("b.parquet", [*products(70, start=70), DEAD[1]], row_group_size=40)


def plan(workplace: Workplace, **changes: Any) -> Planner:
    path = workplace.write_config(**changes)
    return Planner.open(str(path), [], None, None, None, Console(file=io.StringIO()))


def pilot_folder(workplace: Workplace) -> Path:
    return workplace.folder / "out.pilot"


def stored(workplace: Workplace) -> Pilot:
    return Pilot.from_json(json.loads((pilot_folder(workplace) / "draw.json").read_text()))


def test_a_pilot(workplace: Workplace) -> None:
    catalog(workplace)
    found = plan(workplace, cost={"usd_per_hour": 36.0}).from_pilot(60, 0, 0, None)
    assert (found.basis, found.rows, found.dead_rows) == ("pilot", 142, 2)
    assert {each.category: each.rows for each in found.categories} == {"Shoes": 70, "Coffee": 70}
    pilot, run = stored(workplace), read_measured(str(pilot_folder(workplace) / "run"))
    assert len(pilot.draw.rows) == 60
    assert found.sampled == sum(row.batch in pilot.draw.measured_batches for row in pilot.draw.rows)

    # By hand: rows of the stratum x mean seconds of its measured products.
    work = 0.0
    for index, rows in enumerate(pilot.draw.strata_rows):
        costs = [
            run.seconds[number]
            for number, row in enumerate(pilot.draw.rows)
            if row.stratum == index and row.batch in pilot.draw.measured_batches
        ]
        work += sum(rows.values()) * sum(costs) / len(costs)
    assert work > 0
    assert found.work_hours.estimate == pytest.approx(work / 3600)
    assert found.work_hours.low < found.work_hours.estimate < found.work_hours.high
    assert sum(each.hours.estimate for each in found.categories) == pytest.approx(found.work_hours.estimate)
    assert found.usd is not None
    assert found.usd.estimate == pytest.approx(36 * found.billed_hours.estimate)
    assert found.load_seconds > 0
    assert found.prefix_hours > 0
    assert 0 < found.bytes_effect <= 1 or found.bytes_effect == 0
    assert found.sampled_text_bytes == pytest.approx(found.text_bytes, rel=0.2)
    assert found.tokens["document"] > found.tokens["value"] > 0

    # The sample is what the catalog says, each row once, in batches that are shards.
    lines = [json.loads(line) for line in (pilot_folder(workplace) / "sample.jsonl").read_text().splitlines()]
    originals = {row["id"]: row for row in products(140)}
    assert len({line["id"] for line in lines}) == 60
    assert all(line == originals[line["id"]] for line in lines)
    shards = json.loads((pilot_folder(workplace) / "run/_plan.json").read_text())["shards"]
    assert [shard["num_rows"] for shard in shards] == [
        sum(row.batch == batch for row in pilot.draw.rows) for batch in range(pilot.draw.num_batches)
    ]
    assert not (workplace.folder / "out").exists(), "the catalog's own run is not begun"
    totals = workplace.run(base=str(pilot_folder(workplace) / "run")).totals
    assert (totals.products, totals.carried["products"]) == (140, 60), "what the pilot decoded is not decoded again"


@pytest.mark.full
def test_a_second_pilot_narrows_and_a_rerun_only_computes(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog(workplace)
    first = plan(workplace).from_pilot(40, 0, 0, None)
    both = plan(workplace).from_pilot(40, 40, 0, None)
    assert both.work_hours.estimate != first.work_hours.estimate
    assert both.sampled > first.sampled
    assert both.num_batches > first.num_batches
    second = Pilot.from_json(json.loads((pilot_folder(workplace) / "second/draw.json").read_text()))
    places = {(row.file, row.row) for row in stored(workplace).draw.rows}
    assert not places & {(row.file, row.row) for row in second.draw.rows}

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is read, drawn or run again")

    monkeypatch.setattr(cost_plan, "survey_catalog", never)
    monkeypatch.setattr("pipelines.job.job_run.decode_pending", never)
    again = plan(workplace, cost={"usd_per_hour": 1.0}).from_pilot(40, 40, 0, 0.5)
    assert again.work_hours == both.work_hours
    assert (again.utilisation, again.utilisation_source) == (0.5, "set")
    assert again.usd is not None


@pytest.mark.full
def test_a_pilot_asks_what_the_catalog_asks(workplace: Workplace) -> None:
    """Dates, lists, numbers and bytes are the same text in the sample as in the catalog."""
    day = datetime.datetime(2026, 11, 21, 8, 30)
    rows = [
        product(number, id=float(number), title=None, bullets=[b"light", b"red"], stock=float(number % 3))
        | {"sold": day + datetime.timedelta(days=number), "price": decimal.Decimal(number).scaleb(-2), "weight": 0.1}
        for number in range(200)
    ]
    path = workplace.write_parquet("d.parquet", rows, row_group_size=10)
    fields = {"input": {"path": str(path), "id": "id", "fields": ["sold", "bullets", "price", "weight", "stock"]}}
    planner = plan(workplace, **fields)
    planner.from_pilot(20, 0, 0, None)
    sample = read_piece(str(pilot_folder(workplace) / "sample.jsonl"), "jsonl", RowRange(0, 0, 20, 20, 0, 10**6), None)
    config, schemas = planner.job.config.input, planner.job.schemas
    originals = {
        record.id: record
        for row in read_piece(str(path), "parquet", RowRange(0, 0, 200, 200), None)
        if row.values is not None and isinstance(record := to_record(row.values, "", config, schemas), Record)
    }
    records = [to_record(row.values or {}, "", config, schemas) for row in sample]
    assert len(records) == 20
    assert all(isinstance(record, Record) and record == originals[record.id] for record in records)


def test_from_an_earlier_run(workplace: Workplace) -> None:
    catalog(workplace)
    workplace.run(max_dead_letter_share=1, cost={"usd_per_hour": 36.0})
    output = str(workplace.folder / "out")
    products_of_run = read_table(workplace.folder / "out", "products")
    workplace.write_jsonl("new.jsonl", [product(number, category="Coffee") for number in range(500, 600)])
    later = Workplace(workplace.folder, workplace.model, {"output": str(workplace.folder / "later")})
    found = plan(later).from_run(output, None)
    assert (found.basis, found.rows, found.dead_rows, found.utilisation_source) == ("earlier run", 242, 2, "measured")
    means = {}
    for name in ("Shoes", "Coffee"):
        costs = [row["engine_seconds"] for row in products_of_run if row["category"] == name]
        means[name] = sum(costs) / len(costs)
    assert found.work_hours.estimate == pytest.approx((70 * means["Shoes"] + 170 * means["Coffee"]) / 3600)
    assert 0 < found.utilisation <= 1
    assert found.price.usd_per_hour == 36.0, "what its engines were billed"

    other = plan(later, engine={"dtype": "float32", "device": "cpu", "max_value_tokens": 7})
    with pytest.raises(UsageError, match=r"was decoded otherwise: engine.max_value_tokens: 6 -> 7"):
        other.from_run(output, None)

    # A category that it did not have costs what all others do.
    schemas = workplace.folder / "more.yaml"
    schemas.write_text(Path(later.document()["schemas"]).read_text() + "  Hats:\n  - name: Brand\n")
    (hats,) = (
        each for each in plan(later, schemas=str(schemas)).from_run(output, None).categories if each.category == "Hats"
    )
    assert (hats.rows, hats.sampled, hats.is_pooled) == (1, 0, True)
    mean = sum(row["engine_seconds"] for row in products_of_run) / len(products_of_run)
    assert hats.hours.estimate == pytest.approx(mean / 3600)


def test_the_command(workplace: Workplace) -> None:
    catalog(workplace)
    (workplace.catalog / "old.csv").write_text("id\n")
    config = str(workplace.write_config())
    options = ["--config", config, "--pilot", "20", "--deadline", "2", "--on", "g6e.48xlarge"]
    result = CliRunner().invoke(app, [*options, "--set", "cost.market=spot", "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout.strip().splitlines()[-1])
    assert answer["forecast"]["derived"]["usd"]["estimate"] > 0
    assert [each["hours"] for each in answer["deadlines"]] == [2.0]
    assert answer["left_out"]["kinds"]["CSV"]["files"] == 1
    assert "Note: not read: 1 CSV" in result.stderr
    assert answer["forecast"]["price"]["market"] == "spot"
    assert "Assumed:" in result.stderr
    assert "L40S was not measured" in result.stderr
    assert not (pilot_folder(workplace) / "forecast.json").exists(), "that is for what was measured"
    assumed = pilot_folder(workplace) / "forecast.g6e.48xlarge.json"
    assert answer["place"] == str(assumed)
    kept = Forecast.read(str(assumed))
    assert kept.device == "L40S"
    assert len(kept.assumed) == 7
    assert (
        "the interval is that of the sample alone: at 20% instead of 40% the work takes twice as long" in kept.assumed
    )
    plain = CliRunner().invoke(app, ["--config", config, "--pilot", "20"])
    assert plain.exit_code == 0
    assert "no price is known" in plain.stdout
    small, utilisation = Forecast.read(str(pilot_folder(workplace) / "forecast.json")).assumed
    assert small.startswith("at most 20 products were in the engine at a time: with 32 and more")
    assert Forecast.read(str(assumed)) == kept, "it lies beside"
    assert "95% of its time" in utilisation
