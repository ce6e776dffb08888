"""What Prometheus gets, scraped from a real Ray node."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from typing import Any

import pytest

from pipelines.job import prometheus
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace, product, products


def scrape(run_id: str) -> dict[tuple[str, str], float]:
    """Sums of the run's counters on this node, by name and the tag that is theirs."""
    import ray

    (node,) = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    with urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], float] = {}
    for name, tags, value in re.findall(r"^ray_(hpd_\w+?)(?:_total)?\{(.*)\} (\S+)$", text, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', tags))
        if labels.get("run") == run_id:
            own = next((labels[key] for key in ("reason", "status", "kind", "actor") if key in labels), "")
            found[name, own] = found.get((name, own), 0) + float(value)
    return found


@pytest.mark.full
def test_counters_add_up_to_the_run(on_ray: Workplace) -> None:
    on_ray.write_jsonl("c.jsonl", [*products(20), product(20, category="Hats")])
    totals = on_ray.run(run_id="counted", max_dead_letter_share=1).totals
    expected: dict[tuple[str, str], Any] = {
        ("hpd_shards", ""): totals.shards,
        ("hpd_products", ""): 20,
        ("hpd_dead_letters", "no_schema"): 1,
        ("hpd_tokens", "value"): totals.metrics["value_tokens"],
        ("hpd_tokens", "prefix_computed"): totals.metrics["prefix_tokens_computed"],
        **{("hpd_values", status): number for status, number in totals.statuses.items()},
    }
    # The seconds of an actor; a shard's are counted behind all else.
    busy = pytest.approx(totals.metrics["busy_seconds"], rel=1e-3)
    # Ray's processes report every ten seconds.
    deadline = time.monotonic() + 300
    while True:
        found = scrape("counted")
        counted: dict[tuple[str, str], Any] = {key: found.get(key) for key in expected}
        counted["hpd_busy_seconds", ""] = sum(found[key] for key in found if key[0] == "hpd_busy_seconds")
        if counted == expected | {("hpd_busy_seconds", ""): busy} or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert counted == expected | {("hpd_busy_seconds", ""): busy}


def test_the_dashboard_shows_counters_that_there_are() -> None:
    dashboard = json.loads((ROOT / "cluster" / "grafana.json").read_text())
    shown = {name for panel in dashboard["panels"] for name in re.findall(r"ray_(hpd_\w+)_total", json.dumps(panel))}
    assert shown == set(prometheus._COUNTERS) - {"hpd_shards"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        (target,) = panel["targets"]
        (name,) = re.findall(r"ray_(hpd_\w+)_total", target["expr"])
        for tag in re.findall(r"by \((\w+)\)", target["expr"]):
            assert tag == "run" or tag in prometheus._COUNTERS[name][1]
            assert target["legendFormat"] == f"{{{{{tag}}}}}"
