"""Cost and speed of two runs, and that what is missing is no saving."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.evaluating import phrases
from pipelines.evaluating.comparison import RunComparison, compare_runs
from tests.pipelines.evaluating.comparisons import ask
from tests.pipelines.evaluating.made_runs import Row, write_run


def test_cost_and_speed(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(6)]
    a = write_run(tmp_path / "a", rows, price=3.6)
    b = write_run(tmp_path / "b", rows, price=0.0)
    c = write_run(tmp_path / "c", rows)
    priced = compare_runs(a, b)
    found = priced.a.figures
    assert (found.wall_seconds, found.busy_seconds, found.billed_seconds, found.load_seconds) == (20, 10, 20, 1)
    assert (found.products_per_second, found.products_per_engine_second) == (pytest.approx(0.3), pytest.approx(0.3))
    assert found.usd_billed == pytest.approx(0.02)
    assert found.usd_per_1k == pytest.approx(0.02 / 6 * 1000)
    assert found.usd_per_engine_hour == pytest.approx(3.6)
    assert (priced.b.figures.usd_billed, priced.b.figures.usd_per_1k) == (0, 0), "a price of zero is a price"
    unknown = compare_runs(a, c).b.figures
    assert (unknown.usd_billed, unknown.usd_per_1k, unknown.priced_shards) == (None, None, 0)
    _, text, _ = ask(a, c)
    (line,) = [line for line in text.splitlines() if "1,000 decoded products" in line]
    assert line.split()[-2:] == ["$3.33", "–"]


def figure_changes(comparison: RunComparison) -> dict[str, str]:
    return {line.label: line.change for line in phrases.figure_lines(comparison)}


def test_missing_metrics_are_no_savings(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(12)]
    a, b = (write_run(tmp_path / name, rows, price=3.6) for name in "ab")
    for shard in (0, 2):
        (tmp_path / "b" / "metrics" / f"part-{shard:06d}.parquet").unlink()
    comparison = compare_runs(a, b)
    assert comparison.notes == [
        "B: The metrics of 2 of 4 shards are missing: time, tokens and dollars are of the others alone."
    ]
    found = comparison.b.figures
    assert (found.shards, found.metered_shards, found.billed_seconds) == (4, 2, 20)
    assert found.products_per_second is None, "the time of the others is in the wall"
    changes = figure_changes(comparison)
    for sum_of_some in ("wall time", "engine time, billed", "engine time, computing", "tokens: keys", "steps", "cost"):
        assert changes[sum_of_some] == "–"
    assert changes["products"] == "+0.0%"
    assert changes["cost of 1,000 decoded products"] == changes["products/s of an engine"] == "+0.0%", "rates are known"
    whole = write_run(tmp_path / "whole", rows, price=3.6)
    assert "–" not in figure_changes(compare_runs(a, whole)).values()
