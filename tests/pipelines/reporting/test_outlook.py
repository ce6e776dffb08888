"""The outlook: what the whole catalog takes by what was measured, with other engines, prices and texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.reporting.report_facts import Facts
from tests.pipelines.reporting.reports import facts_of, forecast, page_text, verdicts


def test_missing_metrics_make_nothing_cheaper(decoded_run: Path) -> None:
    whole = facts_of(decoded_run).outlook
    (decoded_run / "metrics" / "part-000001.parquet").unlink()
    facts = facts_of(decoded_run)
    assert facts.account is not None
    assert (facts.account.shards, facts.account.missing, facts.account.rows) == (1, 1, 4)
    assert (facts.account.products_per_second, facts.account.mean_engines) == (None, None)
    assert "– engines alive" in page_text(facts)
    assert facts.outlook is not None
    assert whole is not None
    # The first shard's 54 s of work for four of seven rows, in 60 of 90 s; its one engine loads for 30 s.
    assert facts.outlook.hours == pytest.approx((54 * 7 / 4 / (60 / 90) + 30 + 6 / (60 / 90)) / 3600)
    assert facts.outlook.hours > whole.hours
    assert verdicts(decoded_run, forecast())[1] == {None}


def test_deadlines_and_sensitivity_by_what_was_measured(facts: Facts) -> None:
    outlook = facts.outlook
    assert outlook is not None
    # 99 s of work at 105 / 150 s computing, 2 engines with 15 s loading and 3 s of prefixes each.
    assert outlook.hours == pytest.approx((99 / 0.7 + 2 * (15 + 3 / 0.7)) / 3600)
    assert outlook.usd == pytest.approx(outlook.hours * 3.6)
    assert [each.engines for each in outlook.deadlines] == [1] * 5
    half = next(each for each in outlook.sensitivity if each.what == "price of an hour")
    assert half.ratio == pytest.approx(-0.5)
    longer = next(each for each in outlook.sensitivity if each.what == "text length" and each.change == "+20%")
    assert longer.hours == pytest.approx(outlook.hours + 99 / 0.7 / 3600 * 0.2 * 120 / 230), "of 30 tokens scored, none"
