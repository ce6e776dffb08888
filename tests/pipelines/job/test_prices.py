"""What an engine's hour costs, and what a run's account says."""

from __future__ import annotations

import dataclasses
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.catalog.sharding import Shard
from pipelines.config.operation import CostConfig
from pipelines.console.terminal import dollars
from pipelines.errors import BudgetError, RunError
from pipelines.job import prices, summary
from pipelines.job.context import JobContext
from pipelines.job.job_run import run_job
from pipelines.job.local_executor import LocalExecutor
from pipelines.job.preflight import plan_job
from pipelines.job.prices import TABLE_SOURCE, Instance, engine_price, find_instance
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.tables import table

BIG = "g6e.48xlarge"


@table(
    ("settings", "found", "share", "expected"),
    [
        ({}, Instance(), 1.0, (None, None)),
        ({}, Instance(BIG, "spot", "us-east-1"), 1 / 8, (10.37265 / 8, f"{TABLE_SOURCE}, us-east-1")),
        ({}, Instance(BIG, "on-demand", "us-east-1"), 1 / 8, (30.13118 / 8, f"{TABLE_SOURCE}, us-east-1")),
        ({"market": "on-demand"}, Instance(BIG, "spot", "us-east-1"), 1.0, (30.13118, f"{TABLE_SOURCE}, us-east-1")),
        # Prices of another region, of an unknown machine or market are not known.
        ({}, Instance(BIG, "spot", "eu-west-1"), 1.0, (None, None)),
        ({"instance_type": "x9.huge", "market": "spot"}, Instance(), 1.0, (None, None)),
        ({"instance_type": BIG}, Instance(), 1.0, (None, None)),
        ({"instance_type": "p5e.48xlarge", "market": "on-demand"}, Instance(), 1.0, (None, None)),
        ({"usd_per_hour": 8.0}, Instance(), 1 / 4, (2.0, "configuration")),
        ({"usd_per_hour": 0.0}, Instance(BIG, "spot", "us-east-1"), 1.0, (0.0, "configuration")),
    ],
)
def test_a_price_is_configured_or_known_or_empty(settings: Any, found: Instance, share: float, expected: Any) -> None:
    price = engine_price(CostConfig(**settings), share, lambda: found)
    assert (price.usd_per_hour, price.source) == (
        expected[0] if expected[0] is None else pytest.approx(expected[0]),
        expected[1],
    )


@table(
    ("settings", "said"),
    [
        ({}, []),
        ({"instance_type": "mine", "usd_per_hour": 2.0}, []),
        ({"instance_type": BIG}, []),
        ({"instance_type": BIG, "market": "spot"}, []),
        ({"instance_type": "g6e.48xlrage"}, ["has no 'g6e.48xlrage' (there is g6e.48xlarge): set cost.usd_per_hour"]),
        ({"instance_type": "p5e.48xlarge", "market": "on-demand"}, ["no on-demand price of p5e.48xlarge: set"]),
    ],
)
def test_a_machine_without_a_price_is_told_before_any_work(settings: Any, said: list[str]) -> None:
    notes = prices.price_notes(CostConfig(**settings))
    assert len(notes) == len(said)
    assert all(text in note for text, note in zip(said, notes, strict=True))


class Metadata(BaseHTTPRequestHandler):
    """EC2's metadata service, version 2: nothing without a token."""

    answers: dict[str, str] = {  # noqa: RUF012
        "/latest/meta-data/instance-life-cycle": "spot",
        "/latest/meta-data/instance-type": BIG,
        "/latest/meta-data/placement/region": "us-east-1",
    }

    def do_PUT(self) -> None:
        self._answer("a-token" if self.path == "/latest/api/token" else None)

    def do_GET(self) -> None:
        is_known = self.headers["X-aws-ec2-metadata-token"] == "a-token"
        self._answer(self.answers.get(self.path) if is_known else None)

    def _answer(self, text: str | None) -> None:
        self.send_response(401 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_ec2_is_asked_what_it_is_and_other_machines_are_not(
    metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prices, "_SECONDS", 600.0)  # the server here is a thread that may not be run for long
    vendor = tmp_path / "sys_vendor"
    assert find_instance(vendor, metadata) == Instance()
    vendor.write_text("Somebody Else\n")
    assert find_instance(vendor, metadata) == Instance()
    vendor.write_text("Amazon EC2\n")
    assert find_instance(vendor, metadata) == Instance(BIG, "spot", "us-east-1")
    assert find_instance(vendor, "http://127.0.0.1:9") == Instance(), "a container that may not ask"


@pytest.mark.full
def test_the_account_of_a_run(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", [*products(20), product(20, category="Hats")])
    console = Console(file=io.StringIO(), width=200)
    driver = plan_job(workplace.config(max_dead_letter_share=1, cost={"usd_per_hour": 3600.0, "instance_type": "mine"}))
    outcome = run_job(driver, console)
    rows = read_table(workplace.folder / "out", "metrics")
    assert len(rows) > 2
    for row in rows:
        assert (row["instance_type"], row["market"], row["price_source"]) == ("mine", None, "configuration")
        assert (row["price_per_hour"], row["currency"]) == (3600.0, "USD")
        assert row["cost_billed"] == pytest.approx(row["billed_seconds"])
        assert row["cost_useful"] == pytest.approx(row["busy_seconds"])
    # An engine's life, every second once: loading, computing and waiting are in it, and it is no longer than the run.
    billed = sum(row["billed_seconds"] for row in rows)
    assert sum(row["busy_seconds"] + row["load_seconds"] for row in rows) <= billed <= outcome.seconds
    assert outcome.totals.metrics["cost_billed"] == pytest.approx(billed)
    # And every second of computing is a product's, or a prefix's.
    of_products = sum(row["engine_seconds"] for row in read_table(workplace.folder / "out", "products"))
    busy, of_prefixes = (sum(row[name] for row in rows) for name in ("busy_seconds", "prefix_seconds"))
    assert of_products + of_prefixes == pytest.approx(busy)
    catalog = sum(path.stat().st_size for path in workplace.catalog.iterdir())
    assert sum(row["bytes_read"] for row in rows) == catalog
    stored = sum(
        path.stat().st_size
        for table in ("attributes", "products", "dead_letter")
        for path in (workplace.folder / "out" / table).iterdir()
    )
    assert sum(row["bytes_written"] for row in rows) == stored
    summary.print_outcome(console, driver, outcome)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{dollars(billed)} for the engines" in text
    assert f"{dollars(billed / 20 * 1000)} per 1,000 decoded products" in text
    # Outside of EC2 nobody tells what the named machine is bought as.
    outcome.totals.priced_shards = 0
    driver = dataclasses.replace(driver, config=workplace.config(cost={"instance_type": BIG}))
    summary.print_outcome(console, driver, outcome)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"  cost         no dollars: it is not known what {BIG} is bought as: set cost.market" in text


def test_a_budget_stops_the_run_and_a_larger_one_continues_it(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", products(160))
    cost = {"usd_per_hour": 3600.0}  # a dollar a second
    output = workplace.folder / "out"
    with pytest.raises(BudgetError, match=r"have cost \$.* the budget is \$0\.01"):
        workplace.run(cost={**cost, "max_usd": 0.01})
    done = len(list((output / "_shards").glob("*.json")))
    num_planned = len(json.loads((output / "_plan.json").read_text())["shards"])
    assert 0 < done < num_planned
    # Commits are no sign of a second run at work: what the first one had under way may still be committed.
    sessions = decoding_sessions(output)
    assert len(sessions) == 1
    with pytest.raises(BudgetError):
        workplace.run(cost={**cost, "max_usd": 0.01})
    assert decoding_sessions(output) == sessions, "nothing is left of the budget"
    outcome = workplace.run(cost={**cost, "max_usd": 10_000.0})
    assert outcome.discrepancy is None
    assert outcome.totals.products == 160
    assert len(read_table(output, "products")) == 160


def decoding_sessions(output: Path) -> set[str]:
    """The starts of the job that began to decode anything."""
    return {path.name.split("-")[1] for path in (output / "_attempts").rglob("*.json")}


@pytest.mark.full
def test_a_commit_that_the_driver_was_not_told_of_counts_against_the_budget(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace.write_jsonl("c.jsonl", products(160))
    rounds = []

    def breaks_off(_: LocalExecutor, pending: list[Shard], job: JobContext) -> Iterator[Any]:
        """A round that ends after a commit, before it can tell."""
        rounds.append(len(pending))
        facts = {"counts": {**EMPTY, "rows": pending[0].num_rows}, "metrics": {"cost_billed": 2.0}}
        job.ledger.commit(pending[0].id, "an-attempt", {}, facts)
        raise RunError("the storage is away")
        yield

    monkeypatch.setattr(LocalExecutor, "commit_shards", breaks_off)
    with pytest.raises(BudgetError, match=r"have cost \$4\.00 for \d+ rows, the budget is \$3 "):
        workplace.run(cost={"usd_per_hour": 1.0, "max_usd": 3.0})
    assert rounds == [rounds[0], rounds[0] - 1]


@pytest.mark.full
def test_a_budget_without_a_price_is_refused_before_much_is_spent(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", products(60))
    with pytest.raises(BudgetError, match=r"no price: set cost\.usd_per_hour"):
        workplace.run(cost={"max_usd": 5.0})


EMPTY: dict[str, Any] = {"rows": 0, "products": 0, "dead_letters": 0, "statuses": {}, "reasons": {}}
