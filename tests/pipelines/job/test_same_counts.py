"""A number that several pages tell is told the same by all: the summary, the manifest, status, report and compare."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pipelines import evaluate, report, status
from pipelines.console.terminal import dollars
from pipelines.job import ray_stages
from pipelines.job.job_run import run_job
from pipelines.job.preflight import plan_job
from pipelines.job.summary import outcome_json, print_outcome
from pipelines.store.totals import retries_text
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.job.faulty import RaisingDecode


def ask(command: Any, *arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(command.app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def of_totals(totals: dict[str, Any]) -> dict[str, Any]:
    """What a run's totals say, wherever they are written."""
    return {
        "rows": totals["rows"],
        "products": totals["products"],
        "dead_letters": totals["dead_letters"],
        "carried": totals["carried"]["products"],
        "decoded": totals["priced_decoded"],
        "values": totals["statuses"]["value"],
        "retries": totals["metrics"]["retries"],
        "retried_shards": totals["retried_shards"],
        "usd": round(totals["metrics"]["cost_billed"], 9),
    }


def of_tables(run: Path) -> dict[str, Any]:
    """The same, counted in the tables: the truth."""
    found, dead, metrics = (read_table(run, name) for name in ("products", "dead_letter", "metrics"))
    attributes = read_table(run, "attributes")
    carried = sum(row["carried_from"] is not None for row in found)
    return {
        "rows": len(found) + len(dead),
        "products": len(found),
        "dead_letters": len(dead),
        "carried": carried,
        "decoded": len(found) - carried,
        "values": sum(row["status"] == "value" and row["value_index"] == 0 for row in attributes),
        "retries": sum(row["retries"] for row in metrics),
        "retried_shards": sum(row["retries"] > 0 for row in metrics),
        "usd": round(sum(row["cost_billed"] for row in metrics), 9),
    }


@pytest.mark.full
def test_every_page_tells_the_same_of_a_run_with_retries(on_ray: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = on_ray.folder / "monday"
    on_ray.write_jsonl("c.jsonl", products(16))
    on_ray.run(output=str(before))
    # Tonight: the first half as it was, then new texts, one that fails again and again, and one without a schema.
    rows = [*products(8), *(product(8 + n, title=f"New text {n}") for n in range(8)), product(16, title="poison")]
    on_ray.write_jsonl("c.jsonl", [*rows, product(17, category="Hats")])
    monkeypatch.setattr(ray_stages, "Decode", RaisingDecode)
    job = plan_job(
        on_ray.config(
            base=str(before), max_dead_letter_share=1, retries={"max_attempts": 2}, cost={"usd_per_hour": 3600.0}
        )
    )
    console = Console(file=io.StringIO(), width=200)
    outcome = run_job(job, console)
    run = on_ray.folder / "out"
    truth = of_tables(run)
    assert truth["retries"] > truth["retried_shards"] >= 1, "a shard is tried again more than once"
    assert truth["carried"] > 0
    assert truth["dead_letters"] == 2

    assert of_totals(outcome_json(job, outcome, 0)) == truth
    assert of_totals(json.loads((run / "manifest.json").read_text())["totals"]) == truth
    assert of_totals(ask(status, run)["totals"]) == truth
    page = ask(report, run)
    account, told = page["account"], page["totals"]
    assert {
        **{name: told[name] for name in ("rows", "products", "dead_letters", "carried")},
        "decoded": account["decoded"],
        "values": told["statuses"]["value"],
        **{name: account[name] for name in ("retries", "retried_shards")},
        "usd": round(account["money"]["billed"], 9),
    } == truth
    assert sum(reason["count"] for reason in page["dead_letters"]) == truth["dead_letters"]
    assert page["verdict"]["values"] == truth["values"]
    assert sum(each["values"] for each in page["attributes"]) == truth["values"]
    for name in ("values", "products", "dead_letters"):
        assert sum(each[name] for each in page["categories"]) == truth[name]
    compared = ask(evaluate, before, run)
    figures = compared["b"]["figures"]
    assert {name: figures[name] for name in truth.keys() & figures.keys()} == {
        name: truth[name] for name in truth.keys() & figures.keys()
    }
    assert round(figures["usd_billed"], 9) == truth["usd"]
    assert compared["rows"]["rows_b"] == truth["rows"]
    assert compared["rows"]["carried_b"] == truth["carried"]

    # And in words.
    words = retries_text(truth["retries"], truth["retried_shards"])
    print_outcome(console, job, outcome)
    per_1k = f"{dollars(truth['usd'] / truth['decoded'] * 1000)} per 1,000 decoded products"
    summary = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"retries      {words}" in summary
    assert per_1k in summary
    assert f"retries      {words}" in CliRunner().invoke(status.app, [str(run)]).stdout
    assert words in (run / "report.html").read_text()
