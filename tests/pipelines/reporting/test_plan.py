"""The price of a catalog from a real pilot: real engine, real job, real tables."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pipelines.errors import UsageError
from pipelines.plan import app
from pipelines.reporting.cost_plan import Planner
from pipelines.reporting.forecast import Forecast
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


def test_a_pilot(workplace: Workplace) -> None:
    catalog(workplace)
    found = plan(workplace, cost={"usd_per_hour": 36.0}).from_pilot(60, None)
    assert (found.basis, found.rows, found.dead_rows) == ("pilot", 142, 2)
    assert {each.category: each.rows for each in found.categories} == {"Shoes": 70, "Coffee": 70}
    run = pilot_folder(workplace) / "run"
    shards = json.loads((run / "_plan.json").read_text())["shards"]
    assert (len(shards), sum(shard["num_rows"] for shard in shards)) == (15, 60)
    for shard in shards:
        assert {piece["file"] for piece in shard["pieces"]} == {0, 1}, "each is a sample of the whole catalog"

    # By hand: rows of a category x mean seconds of its products, but for those of the first and the last shard.
    edges = {(piece["file"], piece["start"]) for shard in (shards[0], shards[-1]) for piece in shard["pieces"]}
    files = [file["name"] for file in json.loads((run / "_plan.json").read_text())["files"]]
    costs: dict[str, list[float]] = {"Shoes": [], "Coffee": []}
    for row in read_table(run, "products"):
        if (files.index(row["source_file"]), row["source_row"]) not in edges:
            costs[row["category"]].append(row["engine_seconds"])
    assert found.sampled == sum(map(len, costs.values()))
    work = sum(70 * sum(each) / len(each) for each in costs.values())
    assert work > 0
    assert found.work_hours.estimate == pytest.approx(work / 3600)
    assert found.work_hours.low < found.work_hours.estimate < found.work_hours.high
    assert sum(each.hours.estimate for each in found.categories) == pytest.approx(found.work_hours.estimate)
    assert found.usd is not None
    assert found.usd.estimate == pytest.approx(36 * found.billed_hours.estimate)
    assert found.load_seconds > 0
    assert found.prefix_hours > 0
    assert found.tokens["document"] > found.tokens["value"] > 0

    again = plan(workplace, cost={"usd_per_hour": 1.0}).from_pilot(60, 0.5)
    assert (again.work_hours, again.utilisation, again.utilisation_source) == (found.work_hours, 0.5, "set")
    with pytest.raises(UsageError, match="begun with --limit 60, not with --limit 50"):
        plan(workplace).from_pilot(50, None)
    assert not (workplace.folder / "out").exists(), "the catalog's own run is not begun"
    totals = workplace.run(base=str(run)).totals
    assert (totals.products, totals.carried["products"]) == (140, 58), "what the pilot decoded is not decoded again"


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
