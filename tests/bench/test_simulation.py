"""The simulation of large runs: its arithmetic by hand, its plans made in full, its rates from real runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.load import simulation
from bench.load.counting_folder import CountingFolder
from bench.load.simulation import Limits, PlanCosts, Rates, plan_costs, simulate
from bench.load_test import app
from pipelines.config.operation import ShardConfig
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger
from pipelines.store.tables import encode

RATES = Rates(
    gpu_products_per_second=100,
    row_bytes=1000,
    row_tokens=50,
    stage_cpu_seconds=0.001,
    requests={"GET": 4, "HEAD": 6, "PUT": 8, "COPY": 2},
    driver_cpu_seconds=0.05,
    driver_bytes=10_000,
)


def test_the_arithmetic() -> None:
    plan = PlanCosts(num_products=8_000_000, num_shards=8000, seconds=5.0, peak_bytes=2**30, stored_bytes=10**6)
    found = simulate(plan, 8, RATES, Limits())
    assert found.hours == pytest.approx(10_000 / 3600)
    assert found.shards_per_second == pytest.approx(0.8)
    assert found.end_seconds == pytest.approx(8000 * 0.03 / 16)
    assert found.demands == pytest.approx(
        {
            "driver CPU": 0.8 * 0.05,
            "driver memory": (2**30 + 8000 * 10_000) / (16 * 2**30),
            "S3 reads": 0.8 * 10 / 5500,
            "S3 writes": 0.8 * 10 / 3500,
            "CPUs beside the GPUs": 100 * 0.001 / 24,
            "planning and end": (5 + 15) / 10_000,
        }
    )
    assert found.first == "driver memory"
    assert simulate(plan, 512, RATES, Limits()).first == "driver CPU"
    assert simulate(plan, 512, replace(RATES, driver_cpu_seconds=0), Limits()).first == "S3 writes"


def test_a_plan_is_made_in_full() -> None:
    small = plan_costs(2_500_000, RATES, ShardConfig(), num_actors=8)
    # 250 + 50 tokens a row.
    assert small.num_shards == pytest.approx(2_500_000 * 300 / 200_000, rel=0.1)
    assert small.seconds > 0
    assert 1000 * small.num_shards < small.peak_bytes < 100_000 * small.num_shards
    assert small.stored_bytes > 100 * small.num_shards
    capped = plan_costs(2_500_000, RATES, ShardConfig(max_count=100), num_actors=1)
    assert capped.num_shards < 130
    assert capped.stored_bytes < small.stored_bytes / 5


def test_requests_are_counted(tmp_path: Path) -> None:
    folder = CountingFolder(str(tmp_path))
    table = encode("dead_letter", [])
    Ledger(folder, "s").commit(1, "a", {"dead_letter": table}, {"counts": {}})
    assert folder.requests == {"PUT": 2, "GET": 1, "HEAD": 1, "COPY": 1}
    Ledger(folder, "s").committed()
    assert Ledger(folder, "s").is_committed(1)
    assert not Ledger(folder, "s").is_committed(2)
    assert folder.requests == {"PUT": 2, "GET": 1, "COPY": 1, "LIST": 2, "HEAD": 3}
    assert Ledger(Folder(str(tmp_path)), "s").manifest(1)["shard"] == 1


@pytest.mark.soak
def test_the_command(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "PRODUCTS", (100_000, 3_000_000))
    monkeypatch.setattr(simulation, "GPUS", (1, 512))
    monkeypatch.setattr("bench.load.rates._FEW_SHARDS", 40_000)
    monkeypatch.setattr("bench.load.rates._MANY_SHARDS", 5_000)
    options = ["--simulate", "--rows", "1500", "--gpu-speed", "200", "--model", str(tiny_model_dir)]
    result = CliRunner().invoke(app, [*options, "--folder", str(tmp_path / "load")])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.splitlines()[-1])
    rates = facts["rates"]
    assert rates["gpu_products_per_second"] == 200
    assert rates["stage_cpu_seconds"] > 0
    # Four parts, an attempt, a manifest; four copies; a look in every stage, and one before each copy.
    assert (rates["requests"]["PUT"], rates["requests"]["COPY"], rates["requests"]["HEAD"]) == (6, 4, 8)
    assert [each["num_gpus"] for each in facts["scenarios"]] == [1, 512, 1, 512]
    assert all(each["first"] in each["demands"] for each in facts["scenarios"])
    assert "nearest to its limit" in result.stdout


def test_too_few_rows_for_a_simulation(tmp_path: Path, tiny_model_dir: Path) -> None:
    options = ["--simulate", "--rows", "50", "--model", str(tiny_model_dir), "--folder", str(tmp_path / "load")]
    result = CliRunner().invoke(app, options)
    assert (result.exit_code, "more --rows are needed" in result.stderr) == (2, True), result.output
