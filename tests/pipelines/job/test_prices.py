"""What an engine's hour costs, and what a run's account says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipelines.catalog.sharding import Shard
from pipelines.config.operation import CostConfig
from pipelines.errors import BudgetError, RunError
from pipelines.job import prices
from pipelines.job.context import JobContext
from pipelines.job.local_executor import LocalExecutor
from pipelines.job.prices import TABLE_SOURCE, Instance, engine_price, find_instance
from tests.pipelines.conftest import Workplace, products, read_table
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


EMPTY: dict[str, Any] = {"rows": 0, "products": 0, "dead_letters": 0, "statuses": {}, "reasons": {}}
