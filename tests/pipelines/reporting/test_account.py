"""The account of a run: the engines' time and tokens, its dollars, and each category's share of them."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from pipelines.reporting import formats
from pipelines.reporting.page import render_html
from pipelines.reporting.report_facts import Facts
from tests.pipelines.reporting.made_runs import START, metrics, write_run
from tests.pipelines.reporting.reports import change_metrics, coffee, facts_of, page_text


def test_the_engines_time(facts: Facts) -> None:
    account = facts.account
    assert account is not None
    time = account.time
    assert (time.billed, time.load, time.busy, time.retry, time.prefix) == (180, 30, 105, 10, 6)
    assert time.rest == 35
    assert time.overhead == 75
    assert account.wall_seconds == 180, "the pause is no wall time"
    assert (account.engines, account.mean_engines, account.retries) == (2, 1, 1)
    assert account.ended_at - account.started_at == datetime.timedelta(seconds=1080)
    assert account.started_at == START
    assert account.decoded == 5, "one of six products was taken over"
    assert account.products_per_second == pytest.approx(5 / 180)
    assert (account.bytes_read, account.bytes_written) == (2000, 20)


def test_the_cost_of_a_category_is_its_share_of_the_work(facts: Facts) -> None:
    coffees, shoes = facts.categories
    assert (coffees.category, coffees.products, coffees.decoded, coffees.dead_letters) == ("Coffee", 3, 2, 1)
    assert (shoes.category, shoes.products, shoes.decoded, shoes.dead_letters) == ("Shoes", 3, 3, 0)
    assert (coffees.engine_seconds, shoes.engine_seconds) == (6, 3)
    assert coffees.share == pytest.approx(2 / 3)
    assert coffees.usd == pytest.approx(2 / 3 * 105 * 3.6 / 3600)
    assert coffees.usd + shoes.usd == pytest.approx(0.105)  # type: ignore[operator]
    assert coffees.usd_per_1k == pytest.approx(coffees.usd / 2 * 1000)  # type: ignore[operator]
    # Peru at 0.4, of each product; a truth value is no value that should stand somewhere, "Nobody" is one.
    assert (coffees.values, coffees.absent, coffees.doubtful, coffees.ungrounded) == (6, 3, 3, 0)
    assert (shoes.values, shoes.absent, shoes.doubtful, shoes.ungrounded) == (9, 0, 6, 3)


def test_no_price_is_no_zero(tmp_path: Path) -> None:
    run = write_run(tmp_path, [[coffee(0)]], [metrics(0, 60, busy_seconds=30.0)])
    facts = facts_of(run)
    assert facts.account is not None
    assert facts.account.money is None
    assert facts.categories[0].usd is None
    page = render_html(facts)
    assert "no price set" in page
    assert "--usd-per-hour" in page
    assert "$0<" not in page


def test_dollars_of_shards_with_other_prices_are_the_same_wherever_they_stand(run: Path) -> None:
    # 120 s at $36 an hour (load 30, busy 60, retry 10, idle 20), 60 s at $3.60 (busy 45, idle 15).
    change_metrics(run, 0, price_per_hour=36.0)
    facts = facts_of(run)
    money = facts.account.money  # type: ignore[union-attr]
    assert money is not None
    assert (money.billed, money.useful, money.load) == pytest.approx((1.26, 0.645, 0.3))
    assert (money.retry, money.rest) == pytest.approx((0.1, 0.215))
    assert money.useful + money.load + (money.retry or 0) + money.rest == pytest.approx(money.billed)
    assert money.usd_per_hour == pytest.approx(1.26 / 180 * 3600)
    # Coffee: 6 s in the dear shard; Shoes: 1 s in it, 2 s in the other.
    coffees, shoes = facts.categories
    assert coffees.usd == pytest.approx(0.645 * 6 * 36 / (6 * 36 + 36 + 2 * 3.6))
    assert coffees.usd + shoes.usd == pytest.approx(money.useful)  # type: ignore[operator]
    page = page_text(facts)
    for part in (money.billed, money.useful, money.load, money.retry, money.rest):
        assert formats.usd(part) in page


def test_an_engine_that_computed_longer_than_its_bill_makes_no_negative_dollars(run: Path) -> None:
    for shard in (0, 1):
        change_metrics(run, shard, billed_seconds=40.0)
    facts = facts_of(run)
    account, money = facts.account, facts.account.money  # type: ignore[union-attr]
    assert account is not None
    assert money is not None
    assert (account.time.billed, account.time.retry, account.time.rest) == (135, 0, 0)
    assert (money.billed, money.useful, money.overhead) == pytest.approx((0.135, 0.105, 0.03))
    assert (money.retry, money.rest) == pytest.approx((0, 0))
    assert money.usd_per_hour == pytest.approx(3.6)
