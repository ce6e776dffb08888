"""What a report says: every number against one computed by hand, on runs as they lie in their folders."""

from __future__ import annotations

import dataclasses
import datetime
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipelines import report
from pipelines.costing.forecast import CategoryForecast, Forecast, Interval, Price
from pipelines.errors import UsageError
from pipelines.job.prices import usd_per_1k
from pipelines.reporting import formats
from pipelines.reporting.facts import Facts, ForecastFacts, Segment
from pipelines.reporting.gather import Wishes, gather
from pipelines.reporting.highlight import Mark, cut
from pipelines.reporting.page import render_html, render_json, render_markdown
from pipelines.reporting.sample_draw import draw
from pipelines.reporting.table_scan import Scored
from pipelines.store.ledger import Ledger
from tests.pipelines.commands import ROOT
from tests.pipelines.reporting.made_runs import HOSTILE, START, Answer, Product, hostile_products, metrics, write_run


def coffee(number: int, **changes: Any) -> Product:
    fields = {"title": f"Acme coffee {number}", "description": "Dark roast from Peru, 250 g"}
    answers = {"Brand": Answer("Acme"), "Origin": Answer("Peru", 0.4), "Form": Answer(None, 0.8, "absent")}
    return Product(**{"id": f"c{number}", "fields": fields, "answers": answers, "seconds": 3.0} | changes)


def shoe(number: int, **changes: Any) -> Product:
    fields = {"title": f"Velor shoe, red, {number}", "description": "light"}
    answers = {"Colour": Answer("red", 0.6), "Vegan": Answer("true", 0.3), "Brand": Answer("Nobody", 0.2)}
    product = {"id": f"s{number}", "fields": fields, "answers": answers, "category": "Shoes", "seconds": 1.0}
    return Product(**product | changes)


def write_two_shards(folder: Path, last: Product) -> Path:
    """120 engine seconds, a pause of a quarter of an hour, then 60."""
    shards = [
        [coffee(0), coffee(1), shoe(0), coffee(2, dead=("no_text", "every text column is empty"))],
        [shoe(1), shoe(2), last],
    ]
    priced = {"price_per_hour": 3.6, "price_source": "a table", "currency": "USD", "instance_type": "g6"}
    first = metrics(0, 120, load_seconds=30.0, busy_seconds=60.0, retry_seconds=10.0, prefix_seconds=6.0, retries=1)
    second = metrics(1020, 1080, busy_seconds=45.0, retry_seconds=0.0, prefix_seconds=0.0, actor_id="actor-2")
    sizes = {"bytes_read": 1000, "bytes_written": 10}
    return write_run(folder, shards, [first | priced | sizes, second | priced | sizes], booleans=["Vegan"])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two shards; the last product was taken over from an earlier run."""
    return write_two_shards(tmp_path, coffee(3, seconds=None, carried_from="run-0"))


@pytest.fixture
def decoded_run(tmp_path: Path) -> Path:
    """Two shards of the run's own work alone."""
    return write_two_shards(tmp_path, coffee(3, seconds=0.0))


def change_metrics(run: Path, shard: int, **changes: Any) -> None:
    """Other numbers for one shard."""
    path = run / "metrics" / f"part-{shard:06d}.parquet"
    part = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist([row | changes for row in part.to_pylist()], part.schema), path)


def page_text(facts: Facts) -> str:
    """What a reader sees of the page, without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", " ", render_html(facts)))


def facts_of(run: Path, **wishes: Any) -> Facts:
    return gather(str(run), Wishes(**wishes))


def ask(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(report.app, [str(each) for each in arguments])
    return result.exit_code, result.output


def undo(run: Path, shard: int) -> None:
    """The run as it was before its last shard was committed; the shard's parts are published already."""
    (run / "manifest.json").unlink()
    (run / "_shards" / f"{shard:06d}.json").unlink()


# --- numbers


def test_the_engines_time(run: Path) -> None:
    account = facts_of(run).account
    assert account is not None
    time = account.time
    assert (time.billed, time.load, time.busy, time.retry, time.prefix) == (180, 30, 105, 10, 6)
    assert time.idle == 35
    assert time.overhead == 75
    assert account.wall_seconds == 180, "the pause is no wall time"
    assert (account.engines, account.mean_engines, account.retries) == (2, 1, 1)
    assert account.ended_at - account.started_at == datetime.timedelta(seconds=1080)
    assert account.started_at == START
    assert account.decoded == 5, "one of six products was taken over"
    assert account.products_per_second == pytest.approx(5 / 180)
    assert account.progress == ((0, 0), (120, 3), (1080, 6))
    assert (account.bytes_read, account.bytes_written) == (2000, 20)


def test_the_money(run: Path) -> None:
    money = facts_of(run).account.money  # type: ignore[union-attr]
    assert money is not None
    assert money.billed == pytest.approx(180 * 3.6 / 3600)
    assert money.useful == pytest.approx(105 * 3.6 / 3600)
    assert money.overhead == pytest.approx(75 * 3.6 / 3600)
    assert money.per_1k == pytest.approx(0.18 / 5 * 1000)
    assert (money.usd_per_hour, money.sources, money.priced_afterwards) == (pytest.approx(3.6), ("a table",), False)


def test_tokens_by_kind(run: Path) -> None:
    assert facts_of(run).account.tokens == {  # type: ignore[union-attr]
        "prefix_tokens_computed": 20,
        "prefix_tokens_reused": 40,
        "document_tokens": 120,
        "key_tokens": 40,
        "value_tokens": 40,
    }


def test_the_cost_of_a_category_is_its_share_of_the_work(run: Path) -> None:
    coffees, shoes = facts_of(run).categories
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


def test_the_papers_price(tmp_path: Path) -> None:
    """$30.13 an hour for 8 GPUs at 6.28 products/s each: $0.167 per 1,000 products."""
    seconds = 10 / 6.28
    run = write_run(tmp_path, [[coffee(number) for number in range(10)]], [metrics(0, seconds, busy_seconds=1.0)])
    account = facts_of(run, usd_per_hour=30.13 / 8).account
    assert account is not None
    assert account.money is not None
    assert account.money.per_1k == pytest.approx(usd_per_1k(30.13 / 8, 6.28))
    assert formats.usd(account.money.per_1k) == "$0.167"


def test_a_price_afterwards_is_of_all_shards(run: Path) -> None:
    money = facts_of(run, usd_per_hour=36.0).account.money  # type: ignore[union-attr]
    assert money is not None
    assert money.billed == pytest.approx(1.8)
    assert (money.priced_afterwards, money.sources) == (True, ("--usd-per-hour",))


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


def test_a_price_of_zero_is_a_price(tmp_path: Path) -> None:
    run = write_run(tmp_path, [[coffee(0)]], [metrics(0, 60, busy_seconds=30.0, price_per_hour=0.0)])
    facts = facts_of(run)
    assert facts.account.money.billed == 0  # type: ignore[union-attr]
    assert facts.categories[0].usd == 0
    page = render_html(facts)
    assert "no price set" not in page
    assert "$0<" in page


def test_shards_without_a_price_are_left_out_of_the_dollars(tmp_path: Path) -> None:
    rows = [metrics(0, 60, busy_seconds=30.0, price_per_hour=3600.0), metrics(60, 120, busy_seconds=30.0)]
    facts = facts_of(write_run(tmp_path, [[coffee(0), coffee(1)], [coffee(2)]], rows))
    money = facts.account.money  # type: ignore[union-attr]
    assert (money.billed, money.shards, money.decoded, money.per_1k) == (60, 1, 2, 30_000)  # type: ignore[union-attr]
    assert any("1 of 2 shards have no price" in note for note in facts.notes)


def test_dollars_of_shards_with_other_prices_are_the_same_wherever_they_stand(run: Path) -> None:
    # 120 s at $36 an hour (load 30, busy 60, retry 10, idle 20), 60 s at $3.60 (busy 45, idle 15).
    change_metrics(run, 0, price_per_hour=36.0)
    facts = facts_of(run)
    money = facts.account.money  # type: ignore[union-attr]
    assert money is not None
    assert (money.billed, money.useful, money.load) == pytest.approx((1.26, 0.645, 0.3))
    assert (money.retry, money.idle) == pytest.approx((0.1, 0.215))
    assert money.useful + money.load + (money.retry or 0) + money.idle == pytest.approx(money.billed)
    assert money.usd_per_hour == pytest.approx(1.26 / 180 * 3600)
    # Coffee: 6 s in the dear shard; Shoes: 1 s in it, 2 s in the other.
    coffees, shoes = facts.categories
    assert coffees.usd == pytest.approx(0.645 * 6 * 36 / (6 * 36 + 36 + 2 * 3.6))
    assert coffees.usd + shoes.usd == pytest.approx(money.useful)  # type: ignore[operator]
    text, page = render_markdown(facts), page_text(facts)
    for part in (money.billed, money.useful, money.load, money.retry, money.idle):
        assert formats.usd(part) in page
        assert formats.usd(part) in text


def test_dollars_of_some_shards_are_of_their_products_alone(run: Path) -> None:
    change_metrics(run, 1, price_per_hour=None)
    facts = facts_of(run)
    money = facts.account.money  # type: ignore[union-attr]
    assert money is not None
    assert (money.billed, money.useful) == pytest.approx((0.12, 0.06))
    coffees, shoes = facts.categories
    # Of the first shard's seven seconds, six for two coffees and one for a shoe.
    assert (coffees.usd, shoes.usd) == pytest.approx((0.06 * 6 / 7, 0.06 / 7))
    assert (coffees.usd_per_1k, shoes.usd_per_1k) == pytest.approx((0.06 * 6 / 7 / 2 * 1000, 0.06 / 7 * 1000))
    change_metrics(run, 0, price_per_hour=None)
    change_metrics(run, 1, price_per_hour=3.6)
    coffees, shoes = facts_of(run).categories
    assert (coffees.usd, shoes.usd) == (None, pytest.approx(0.045)), "no coffee was decoded at a price"


def test_an_engine_that_computed_longer_than_its_bill_makes_no_negative_dollars(run: Path) -> None:
    for shard in (0, 1):
        change_metrics(run, shard, billed_seconds=40.0)
    facts = facts_of(run)
    account, money = facts.account, facts.account.money  # type: ignore[union-attr]
    assert account is not None
    assert money is not None
    assert (account.time.billed, account.time.retry, account.time.idle) == (135, 0, 0)
    assert (money.billed, money.useful, money.overhead) == pytest.approx((0.135, 0.105, 0.03))
    assert (money.retry, money.idle) == pytest.approx((0, 0))
    assert money.usd_per_hour == pytest.approx(3.6)


def test_shards_at_the_same_time_are_one_wall(tmp_path: Path) -> None:
    rows = [
        metrics(0, 100, busy_seconds=90.0, actor_id="a"),
        metrics(10, 110, busy_seconds=90.0, actor_id="b"),
        # Billed from its engine's start on, which was before the shard.
        metrics(150, 160, busy_seconds=10.0, actor_id="c", billed_seconds=30.0),
    ]
    account = facts_of(write_run(tmp_path, [[coffee(0)], [coffee(1)], [coffee(2)]], rows)).account
    assert account is not None
    assert account.wall_seconds == 110 + 30
    assert (account.time.billed, account.time.idle, account.time.retry) == (230, 40, None)


def test_a_failed_try_beside_other_work_is_not_counted_twice(tmp_path: Path) -> None:
    row = metrics(0, 100, busy_seconds=80.0, load_seconds=5.0, retry_seconds=50.0)
    time = facts_of(write_run(tmp_path, [[coffee(0)]], [row])).account.time  # type: ignore[union-attr]
    assert (time.retry, time.idle) == (15, 0)
    assert time.load + time.busy + (time.retry or 0) + time.idle == time.billed


# --- runs that are not as they should be


def test_a_run_that_has_stopped_is_reported_as_far_as_it_is_committed(run: Path) -> None:
    undo(run, 1)
    facts = facts_of(run)
    assert facts.identity.state == "stopped"
    assert (facts.totals.rows, facts.totals.products) == (4, 3)
    assert sum(category.products for category in facts.categories) == 3, "a published part is not yet a committed one"
    assert facts.account.time.billed == 120  # type: ignore[union-attr]
    assert "1 of 2 shards" in facts.notes[0]
    assert facts.notes[0] in html.unescape(render_html(facts))
    assert facts.outlook is not None
    assert facts.outlook.rows == 7, "what is left is taken to be like what is done"


def test_a_run_that_goes_on_meanwhile_is_listed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undo(run, 1)
    listed = iter([{0}])
    monkeypatch.setattr(Ledger, "committed", lambda _: next(listed))
    facts = facts_of(run)
    assert sum(category.products for category in facts.categories) == facts.totals.products == 3
    assert facts.account.shards == facts.totals.shards == 1  # type: ignore[union-attr]


def test_a_run_that_ends_meanwhile_is_reported_as_a_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, finished, manifest = iter([{0}, {0, 1}]), iter([None]), json.loads((run / "manifest.json").read_text())
    monkeypatch.setattr(Ledger, "committed", lambda _: next(listed))
    monkeypatch.setattr(Ledger, "finished", lambda _: next(finished, manifest))
    facts = facts_of(run)
    assert (facts.identity.state, facts.totals.rows, facts.notes) == ("finished", 7, ())


def test_a_run_without_a_committed_shard(run: Path) -> None:
    undo(run, 1)
    (run / "_shards" / "000000.json").unlink()
    facts = facts_of(run)
    assert "nothing to report" in facts.notes[0]
    assert (facts.account, facts.categories, facts.sample.products, facts.outlook) == (None, (), (), None)
    for render in (render_html, render_markdown, render_json):
        assert render(facts)


def test_missing_metrics(run: Path) -> None:
    shutil.rmtree(run / "metrics")
    facts = facts_of(run)
    assert facts.account is None
    assert facts.categories[0].engine_seconds == 6
    assert facts.categories[0].usd is None
    assert any("metrics of 2 of 2 shards are missing" in note for note in facts.notes)
    assert "no metrics" in render_html(facts)
    assert "no metrics" in render_markdown(facts)


def test_every_row_dead_lettered(tmp_path: Path) -> None:
    dead = [coffee(number, dead=("no_schema", "no schema for category 'Coffee'")) for number in range(5)]
    facts = facts_of(write_run(tmp_path, [dead], [metrics(0, 10, load_seconds=5.0)]))
    (reason,) = facts.dead_letters
    assert (reason.code, reason.stage, reason.count, reason.share) == ("no_schema", "prepare", 5, 1)
    assert len(reason.examples) == 3
    assert json.loads(reason.examples[0].row or "")["title"] == "Acme coffee 0"
    assert any("Every row is dead-lettered" in note for note in facts.notes)
    assert (facts.account.products_per_second, facts.outlook) == (0, None)  # type: ignore[union-attr]
    assert "no_schema" in render_html(facts)


def test_a_run_from_before_seconds_were_counted_by_product(run: Path) -> None:
    for path in (run / "products").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["engine_seconds"]), path)
    for path in (run / "metrics").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["retry_seconds", "prefix_seconds", "bytes_read"]), path)
    facts = facts_of(run)
    assert {category.usd for category in facts.categories} == {None}
    assert (facts.account.time.retry, facts.account.time.idle) == (None, 45)  # type: ignore[union-attr]
    page = render_html(facts)
    assert "did not count engine seconds by product" in page
    assert "not counted" in page


@pytest.mark.parametrize("table", ["products", "attributes", "dead_letter", "metrics"])
def test_an_unreadable_part(run: Path, table: str) -> None:
    (run / table / "part-000001.parquet").write_bytes(b"PAR1 not really")
    code, text = ask(run)
    assert code == 2
    assert f"{table}/part-000001.parquet" in text
    assert len(text.strip().splitlines()) == 1


def test_a_part_that_is_gone(run: Path) -> None:
    (run / "products" / "part-000001.parquet").unlink()
    with pytest.raises(UsageError, match="part-000001"):
        facts_of(run)


def test_bad_input(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "gold.jsonl").write_text('{"product_id": "other", "category": "Tea", "values": {"Brand": null}}')
    (tmp_path / "broken.jsonl").write_text("{")
    for arguments, expected in [
        ([tmp_path / "nowhere"], "there is no run"),
        ([tmp_path / "file"], "is a file"),
        ([tmp_path], "holds no run"),
        ([run, "--gold", tmp_path / "nowhere.jsonl"], "no such gold file"),
        ([run, "--gold", tmp_path / "gold.jsonl"], "does not belong to"),
        ([run, "--gold", tmp_path / "broken.jsonl"], "line 1: not JSON"),
        ([run, "--forecast", tmp_path / "nowhere.json"], "there is no forecast"),
        ([run, "--forecast", tmp_path / "file"], "cannot read"),
        ([run, "--compare", tmp_path / "nowhere"], "there is no run"),
        ([run, "--out", tmp_path / "file"], "is a file"),
        ([run, "--usd-per-hour", "inf"], "is no price"),
    ]:
        code, text = ask(*arguments)
        assert code == 2, arguments
        assert expected in text
        assert len(text.strip().splitlines()) == 1, text
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    "content", ["{", "[1, 2]", '{"Coffee": 5}', '{"Coffee": [5]}', '{"Coffee": [{"type": "boolean"}]}']
)
@pytest.mark.parametrize("name", ["_plan.json", "_schemas.json"])
def test_a_damaged_file_of_the_run(run: Path, name: str, content: str) -> None:
    (run / name).write_text(content)
    code, text = ask(run)
    assert code == 2
    assert len(text.strip().splitlines()) == 1, text


# --- texts and highlights

UNICODE = [
    ("حذاء رياضي أحمر من نايكي مقاس 42", "نايكي"),
    ("נעלי ריצה אדומות Velor 42 לגברים", "אדומות"),
    ("👩‍👩‍👧‍👦 family pack 🏴󠁧󠁢󠁥󠁮󠁧󠁿 Acme 👍🏽", "Acme"),
    (unicodedata.normalize("NFD", "Café crème Straße déjà"), unicodedata.normalize("NFD", "crème")),
    ("赤いランニングシューズ、メンズ、26cm", "赤い"),
    ("กาแฟคั่วเข้ม 250 กรัม", "คั่วเข้ม"),
    ("𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁 Blue", "Blue"),
]


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_values_are_marked_where_they_stand_in_any_script(tmp_path: Path, file_format: str) -> None:
    products = [
        Product(f"u{index}", {"title": "nothing", "description": f"{text}, {text}"}, {"Brand": Answer(value)})
        for index, (text, value) in enumerate(UNICODE)
    ]
    run = write_run(tmp_path, [products[:3], products[3:]], file_format=file_format)
    facts = facts_of(run)
    assert len(facts.sample.products) == len(UNICODE)
    for product in facts.sample.products:
        text, value = UNICODE[int(product.product_id.removeprefix("u"))]
        assert product.fields is not None
        title, description = product.fields
        assert [segment.text for segment in title.segments] == ["nothing"]
        assert "".join(segment.text for segment in description.segments) == f"{text}, {text}"
        marked = [segment.text for segment in description.segments if segment.values]
        assert marked == [value, value], "every occurrence"
    assert render_html(facts).count("<mark ") >= 2 * len(UNICODE)


def test_overlapping_values_share_their_characters() -> None:
    segments = cut("red shoe now", [Mark(0, 8, 0, "folded"), Mark(0, 3, 1, "exact"), Mark(4, 8, 2, "fuzzy")])
    assert segments == (
        Segment("red", (1, 0), "exact"),
        Segment(" ", (0,), "folded"),
        Segment("shoe", (2, 0), "folded"),
        Segment(" now"),
    )


@given(st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5)), max_size=8))
def test_cutting_loses_nothing(text: str, places: list[tuple[int, int, int]]) -> None:
    marks = [Mark(s, min(len(text), s + n), value, "exact") for s, n, value in places if s < len(text)]
    segments = cut(text, marks)
    assert "".join(segment.text for segment in segments) == text
    position = 0
    for segment in segments:
        here = {mark.value for mark in marks if mark.start <= position < mark.end}
        assert set(segment.values) == here
        position += len(segment.text)


def test_the_middle_of_a_long_text_is_left_out() -> None:
    (before, omitted, after, marked, rest) = cut("a" * 5000 + "Acme" + "b" * 10, [Mark(5000, 5004, 0, "exact")])
    assert (len(before.text), omitted.omitted, len(after.text)) == (400, 4200, 400)
    assert (marked.text, rest.text) == ("Acme", "b" * 10)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_catalog_that_has_changed_shows_no_wrong_text(tmp_path: Path, file_format: str) -> None:
    products = [coffee(number) for number in range(6)]
    run = write_run(tmp_path / "a", [products], file_format=file_format)
    other = [*products[:2], coffee(99), *products[3:]]
    write_run(tmp_path / "b", [other], file_format=file_format)
    catalog = f"catalog.{file_format}"
    shutil.copy(tmp_path / "b" / catalog, tmp_path / "a" / catalog)
    facts = facts_of(run)
    without = {product.product_id for product in facts.sample.products if product.fields is None}
    # A longer line pushes the last one over the end of its shard.
    assert without == ({"c2"} if file_format == "parquet" else {"c2", "c5"})
    assert any("has changed since the run" in note for note in facts.notes)
    shown = next(product for product in facts.sample.products if product.product_id == "c2")
    assert [value.text for value in shown.values if value.attribute == "Brand"] == ["Acme"]
    assert "Its text could not be read back" in render_html(facts)


@pytest.mark.parametrize("damage", ["gone", "cut", "garbage", "folder"])
@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_catalog_that_cannot_be_read(tmp_path: Path, file_format: str, damage: str) -> None:
    run = write_run(tmp_path, [[coffee(0), coffee(1)]], file_format=file_format)
    catalog = tmp_path / f"catalog.{file_format}"
    content = catalog.read_bytes()
    catalog.unlink()
    if damage == "folder":
        catalog.mkdir()
    elif damage != "gone":
        catalog.write_bytes(content[: len(content) // 2] if damage == "cut" else b"\xff\x00" * len(content))
    facts = facts_of(run)
    assert len(facts.sample.products) == 2
    assert any(str(catalog) in note for note in facts.notes)
    assert facts.sample.products[1].fields is None
    assert render_html(facts)


# --- the sample


def test_least_certain_first(run: Path) -> None:
    facts = facts_of(run)
    lowest = [product.lowest for product in facts.sample.products]
    assert lowest == sorted(lowest, key=lambda each: each or 0)
    first = facts.sample.products[0]
    assert first.category == "Shoes"
    assert [value.attribute for value in first.values] == ["Brand", "Vegan", "Colour"]
    brand, vegan, colour = first.values
    assert brand.is_ungrounded
    assert (vegan.places, vegan.is_ungrounded) == (None, False), "a conclusion stands nowhere"
    assert [place.match for place in colour.places or ()] == ["exact"]
    assert facts.sample.products[-1].values[-1].status == "absent"


def test_several_values_and_failed_answers(tmp_path: Path) -> None:
    answers = {"Notes": Answer(["plum", "cocoa", "smoke"]), "Origin": Answer("Per", 0.1, "truncated")}
    product = Product("p", {"title": "plum and cocoa, plum"}, answers)
    (shown,) = facts_of(write_run(tmp_path, [[product]])).sample.products
    assert [(value.text, len(value.places or ())) for value in shown.values] == [
        ("Per", 0),
        ("plum", 2),
        ("cocoa", 1),
        ("smoke", 0),
    ]
    assert (shown.num_failed, shown.num_ungrounded, shown.lowest) == (1, 1, pytest.approx(0.1))


def change_answers(run: Path, **changes: Any) -> None:
    """The same in every row of the attributes."""
    for path in (run / "attributes").glob("*.parquet"):
        part = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist([row | changes for row in part.to_pylist()], part.schema), path)


def test_an_answer_of_several_values_is_ungrounded_once(tmp_path: Path) -> None:
    answers = {"Notes": Answer(["plum", "cocoa", "smoke", "honey"], 0.3), "Brand": Answer("Acme", 0.9)}
    products = [Product(f"p{n}", {"title": "Acme, plum"}, answers) for n in range(2)]
    (category,) = facts_of(write_run(tmp_path, [products])).categories
    assert (category.values, category.ungrounded, category.doubtful) == (4, 2, 2)


def test_what_an_older_run_does_not_say_is_no_zero(run: Path) -> None:
    change_answers(run, evidence=None, logprob_mean=None)
    facts = facts_of(run)
    by_name = {each.category: (each.doubtful, each.ungrounded) for each in facts.categories}
    # A truth value of the shoes is never ungrounded: that is known.
    assert by_name == {"Coffee": (None, None), "Shoes": (None, 0)}
    row = next(line for line in render_markdown(facts).splitlines() if line.startswith("| Coffee |"))
    assert [cell.strip() for cell in row.split("|")][7:9] == ["–", "–"]
    assert render_html(facts)


def test_a_category_without_values_has_no_doubtful_ones(tmp_path: Path) -> None:
    product = coffee(0, answers={"Form": Answer(None, None, "absent")})
    (category,) = facts_of(write_run(tmp_path, [[product]])).categories
    assert (category.values, category.doubtful, category.ungrounded) == (0, 0, 0)


def test_a_probability_that_is_no_number_is_not_known(run: Path) -> None:
    change_answers(run, logprob_mean=math.nan)
    facts = facts_of(run)
    assert {value.probability for product in facts.sample.products for value in product.values} == {None}
    assert "NaN" not in render_json(facts)


def scored(count: int, category: str, start: int = 0) -> list[Scored]:
    return [Scored("f", start + n, category, (n * 7919 % count) / count, n % 3 == 0, n % 50 == 0) for n in range(count)]


def test_the_sample_is_bounded_and_each_category_is_in_it() -> None:
    products = [*scored(5000, "large"), *scored(3, "small", 10_000), *scored(40, "middle", 20_000)]
    drawn = draw(products, 60, seed=1)
    assert len(drawn) == 60
    assert {each.scored.category for each in drawn} == {"large", "small", "middle"}
    assert {each.why for each in drawn} == {"least certain", "ungrounded", "failed", "random"}
    assert min(products, key=lambda each: each.lowest) in [each.scored for each in drawn]
    assert drawn == draw(reversed(products), 60, seed=1), "whatever the order"
    assert drawn != draw(products, 60, seed=2)
    assert len(draw(products, 10_000, seed=1)) == len(products)
    assert draw(products, 0, seed=1) == draw([], 10, seed=1) == []


def test_a_thousand_categories_do_not_make_a_thousand_heaps_full() -> None:
    products = [product for index in range(1000) for product in scored(60, f"c{index}", 100 * index)]
    drawn = draw(products, 200, seed=0)
    assert len(drawn) == 200
    assert len({each.scored.category for each in drawn}) > 75


# --- gold, forecast, comparison


def write_gold(path: Path, origins: dict[str, str | None]) -> Path:
    lines = [
        {"product_id": name, "category": "Coffee", "values": {"Origin": None if origin is None else [origin]}}
        for name, origin in origins.items()
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_scores_and_what_gold_says_of_each_value(run: Path, tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Chile", "c3": None, "c2": "Peru"})
    facts = facts_of(run, gold=str(gold))
    quality = facts.quality
    assert quality is not None
    # c0 right, c1 wrong, c3 made up, c2 dead-lettered: VC 1, VW 1, NV 1, VN 1.
    assert quality.precision.value == pytest.approx(1 / 3)
    assert quality.recall.value == pytest.approx(1 / 3)
    assert quality.f1.value == pytest.approx(1 / 3)
    assert quality.f1.low <= quality.f1.value <= quality.f1.high
    assert [(band.low, band.num_values, band.num_right) for band in quality.bands if band.num_values] == [(0.25, 3, 1)]
    by_name = {category.category: category.f1 for category in facts.categories}
    assert by_name == {"Coffee": pytest.approx(1 / 3), "Shoes": None}
    verdicts = {
        product.product_id: [(value.gold, value.is_right) for value in product.values if value.attribute == "Origin"]
        for product in facts.sample.products
    }
    assert verdicts["c0"] == [("Peru", True)]
    assert verdicts["c1"] == [("Chile", False)]
    assert verdicts["c3"] == [("(absent)", False)]
    page = render_html(facts)
    assert f"{quality.f1.value:.3f}" in page
    assert "wrong" in page


def test_a_run_that_has_not_come_to_labelled_products_is_not_scored(run: Path, tmp_path: Path) -> None:
    undo(run, 1)
    for table in ("products", "attributes"):
        (run / table / "part-000001.parquet").unlink()
    gold = write_gold(tmp_path / "gold.jsonl", {"c3": "Peru"})
    facts = facts_of(run, gold=str(gold))
    assert facts.quality is None
    assert any(note.startswith("Not scored yet") for note in facts.notes)


def forecast(rows: int = 7, usd: float | None = 3.6, dead_rows: int = 0) -> Forecast:
    return Forecast(
        basis="pilot",
        source="out.pilot",
        created_at="2026-11-01T10:00:00+00:00",
        model="tiny",
        device="cpu",
        rows=rows,
        dead_rows=dead_rows,
        sampled=20,
        num_batches=5,
        seed=0,
        text_bytes=100.0,
        sampled_text_bytes=90.0,
        work_hours=Interval(99 / 3600, 90 / 3600, 100 / 3600),
        prefix_hours=3 / 3600,
        load_seconds=15.0,
        utilisation=0.5,
        utilisation_source="assumed",
        engines=2,
        price=Price(usd, "a table", engines_per_node=4),
        categories=[CategoryForecast("Coffee", 4, 10, Interval(7 / 3600, 6.5 / 3600, 8 / 3600))],
        tokens={"document": 50.0, "key": 20.0, "value": 20.0},
        bytes_effect=0.5,
        assumed=["engines wait half of their time"],
    )


def test_the_forecast_beside_what_came_true(decoded_run: Path) -> None:
    run = decoded_run
    place = run.with_name("run.pilot")
    place.mkdir()
    (place / "forecast.json").write_bytes(forecast(dead_rows=1).to_json())
    facts = facts_of(run)
    expected = facts.forecast
    assert expected is not None
    assert expected.is_comparable
    lines = {line.what: line for line in expected.lines}
    cost = lines["Cost"]
    # Fixed: 2 engines x (15 s + 3 s / 0.5) = 42 s; work: 99 / 0.5 = 198 s, 180 to 200.
    assert (cost.estimate, cost.low, cost.high) == pytest.approx((0.240, 0.222, 0.242))
    assert (cost.actual, cost.is_inside) == (pytest.approx(0.18), False)
    work = lines["of them computing for products"]
    assert (work.actual, work.is_inside) == (pytest.approx(99 / 3600), True), "busy less the prefixes"
    assert lines["Engine hours"].actual == pytest.approx(180 / 3600)
    by_row = lines["Cost of 1,000 rows that can be extracted"]
    assert (by_row.estimate, by_row.actual) == pytest.approx((0.24 / 6 * 1000, 0.18 / 6 * 1000)), (
        "of seven, one is empty"
    )
    (category,) = expected.categories
    assert (category.what, category.actual, category.is_inside) == ("Coffee", pytest.approx(6 / 3600), False)
    page = render_html(facts)
    assert ">outside<" in page
    assert ">inside<" in page
    assert "engines wait half of their time" in page
    assert facts.outlook is not None
    assert facts.outlook.engines_per_node == 4
    # Priced afterwards, both sides are.
    repriced = {line.what: line for line in facts_of(run, usd_per_hour=36.0).forecast.lines}  # type: ignore[union-attr]
    assert (repriced["Cost"].estimate, repriced["Cost"].actual) == pytest.approx((2.4, 1.8))


def test_a_forecast_of_other_rows_gets_no_verdict(run: Path, tmp_path: Path) -> None:
    other = dataclasses.replace(forecast(rows=1000, usd=None), device="a large GPU")
    (tmp_path / "f.json").write_bytes(other.to_json())
    expected = facts_of(run, forecast=str(tmp_path / "f.json")).forecast
    assert expected is not None
    assert not expected.is_comparable
    assert "Cost" not in {line.what for line in expected.lines}
    assert any("of 1,000 rows, the run took 7" in note for note in expected.notes)
    assert any("for a large GPU, the run was on cpu" in note for note in expected.notes)
    assert ">outside<" not in render_html(facts_of(run, forecast=str(tmp_path / "f.json")))


def verdicts(run: Path, expected: Forecast) -> tuple[ForecastFacts, set[bool | None]]:
    """The forecast's facts, and what the JSON says of it."""
    place = run.with_name("f.json")
    place.write_bytes(expected.to_json())
    facts = facts_of(run, forecast=str(place))
    assert facts.forecast is not None
    data = json.loads(render_json(facts))["forecast"]
    return facts.forecast, {line["is_inside"] for line in (*data["lines"], *data["categories"])}


def test_no_verdict_where_the_run_is_another_one_than_was_forecast(decoded_run: Path) -> None:
    assert verdicts(decoded_run, forecast())[1] == {True, False}
    found, inside = verdicts(decoded_run, dataclasses.replace(forecast(), device="a large GPU"))
    assert (found.is_comparable, inside) == (False, {None}), "another machine"
    change_metrics(decoded_run, 0, price_per_hour=None)
    found, inside = verdicts(decoded_run, forecast())
    assert (found.is_comparable, inside) == (False, {None}), "some shards' dollars"
    assert any("lack metrics or a price" in note for note in found.notes)
    by_row = next(line for line in found.lines if line.what.startswith("Cost of 1,000"))
    assert by_row.actual is None, "some shards' dollars by all shards' rows"


def test_no_verdict_on_a_run_that_took_products_over(run: Path) -> None:
    found, inside = verdicts(run, forecast())
    assert (found.is_comparable, inside) == (False, {None})
    assert any("1 products were taken over" in note for note in found.notes)


def test_a_forecast_for_a_machine_of_the_data_sheets_is_of_that_machine(tmp_path: Path) -> None:
    engine = {"model_id": "tiny", "layout": "tree", "device_name": "NVIDIA L40S"}
    run = write_run(tmp_path, [[coffee(0)]], [metrics(0, 10, busy_seconds=9.0)], engine=engine)
    found, _ = verdicts(run, dataclasses.replace(forecast(rows=1), device="L40S"))
    assert found.is_comparable
    assert found.notes == ()


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


def without_engines() -> str:
    return json.dumps(json.loads(forecast().to_json()) | {"engines": 0})


@pytest.mark.parametrize("content", ["{", "[]", "{}", without_engines()])
def test_a_broken_forecast_at_the_usual_place_is_left_out(run: Path, content: str) -> None:
    place = run.with_name("run.pilot")
    place.mkdir()
    (place / "forecast.json").write_text(content)
    facts = facts_of(run)
    assert facts.forecast is None
    assert any("The forecast is left out" in note for note in facts.notes)
    assert render_html(facts)
    code, text = ask(run, "--forecast", place / "forecast.json")
    assert code == 2, "one that was named must be one"
    assert len(text.strip().splitlines()) == 1


def test_deadlines_and_sensitivity_by_what_was_measured(run: Path) -> None:
    outlook = facts_of(run).outlook
    assert outlook is not None
    # 99 s of work at 105 / 150 s computing, 2 engines with 15 s loading and 3 s of prefixes each.
    assert outlook.hours == pytest.approx((99 / 0.7 + 2 * (15 + 3 / 0.7)) / 3600)
    assert outlook.usd == pytest.approx(outlook.hours * 3.6)
    assert [each.engines for each in outlook.deadlines] == [1] * 5
    half = next(each for each in outlook.sensitivity if each.what == "price of an hour")
    assert half.ratio == pytest.approx(-0.5)
    longer = next(each for each in outlook.sensitivity if each.what == "text length" and each.change == "+20%")
    assert longer.hours == pytest.approx(outlook.hours + 99 / 0.7 / 3600 * 0.2 * 120 / 200)


def test_engines_of_a_node_as_the_run_had_them(run: Path) -> None:
    assert facts_of(run).outlook.engines_per_node == 1  # type: ignore[union-attr]
    for shard in (0, 1):
        change_metrics(run, shard, node_share=0.125)
    outlook = facts_of(run).outlook
    assert outlook is not None
    assert outlook.engines_per_node == 8
    assert {each.nodes for each in outlook.deadlines} == {1}


def test_runs_beside_each_other(run: Path, tmp_path: Path) -> None:
    engine = {"model_id": "other", "layout": "stacked", "adapter_id": "adapters/x"}
    rows = [metrics(0, 10, busy_seconds=9.0, price_per_hour=3.6)]
    other = write_run(tmp_path / "other", [[coffee(0), coffee(1)]], rows, engine=engine)
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Peru"})
    first, second = facts_of(run, compare=[str(other)], gold=str(gold)).compared
    assert (first.is_this, first.layout, first.usd_per_1k) == (True, "tree", pytest.approx(36.0))
    assert (second.is_this, second.layout, second.model, second.adapter) == (False, "stacked", "other", "adapters/x")
    assert (second.usd_per_1k, second.seconds_per_1k, second.products_per_second) == pytest.approx((5.0, 5000, 0.2))
    assert second.f1 is not None
    assert second.f1.value == 1
    page = render_html(facts_of(run, compare=[str(other)], gold=str(gold)))
    assert "Quality over cost" in page
    assert "Quality over cost" not in render_html(facts_of(run, compare=[str(other)]))


def test_what_is_known_of_compared_runs_stands_at_the_top(run: Path, tmp_path: Path) -> None:
    rows = [metrics(0, 10, busy_seconds=9.0, price_per_hour=3.6), metrics(10, 20, busy_seconds=9.0)]
    engine = {"model_id": "tiny", "layout": "tree", "device": "cuda", "device_name": "a GPU"}
    other = write_run(tmp_path / "other", [[coffee(0)], [coffee(1)]], rows, planned_shards=3, engine=engine)
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Peru", "c9": "Peru"})
    facts = facts_of(run, compare=[str(other)], gold=str(gold))
    of_other = [note.removeprefix(f"{other}: ") for note in facts.notes if note.startswith(f"{other}: ")]
    assert of_other[0].startswith("This run is stopped")
    assert of_other[1:3] == [
        "It read other files, or another part of them, than the run of this report.",
        "It ran on a GPU, the run of this report on cpu.",
    ]
    assert not [note for note in facts_of(run, compare=[str(run)]).notes if "run of this report" in note]
    assert "1 of 2 shards have no price: dollars are of the others alone." in of_other
    assert [line.num_scored for line in facts.compared] == [2, 2]
    text = render_markdown(facts)
    (line,) = [line for line in text.splitlines() if line.startswith("|") and str(other).replace("_", "\\_") in line]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[2:9] == ["stopped", "tree", "tiny", "none", "2", "2", "1.000 \\[1.000, 1.000\\]"]


def test_a_compared_run_that_gold_does_not_know_has_a_dash(run: Path, tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru"})
    dead = [Product(None, {"title": ""}, dead=("no_text", "no text")) for _ in range(2)]
    buried = write_run(tmp_path / "buried", [dead], [metrics(0, 10)])
    stranger = write_run(tmp_path / "stranger", [[coffee(7)]], [metrics(0, 10, busy_seconds=9.0)])
    facts = facts_of(run, compare=[str(buried), str(stranger)], gold=str(gold))
    assert [(line.f1 is None, line.num_scored) for line in facts.compared] == [(False, 1), (True, None), (True, None)]
    assert f"{buried}: Not scored: all rows are dead-lettered." in facts.notes
    assert any(note.startswith(f"{stranger}: Not scored: ") and "does not belong" in note for note in facts.notes)
    for render in (render_html, render_markdown, render_json):
        assert render(facts)
    alone = facts_of(buried, gold=str(gold))
    assert alone.quality is None
    assert "Not scored: all rows are dead-lettered." in alone.notes


# --- the three files


class Page(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    engine = {"model_id": HOSTILE[0], "adapter_id": HOSTILE[2], "layout": "tree", "versions": {HOSTILE[1]: HOSTILE[4]}}
    products = hostile_products()
    rows = [metrics(0, 10, busy_seconds=9.0, price_source=HOSTILE[3], price_per_hour=1.0, instance_type=HOSTILE[0])]
    return write_run(tmp_path, [products], rows, engine=engine)


def test_nothing_of_a_hostile_catalog_becomes_markup(hostile: Path) -> None:
    page = render_html(facts_of(hostile))
    tags = Page(page).tags
    assert [tag for tag, _ in tags].count("script") == 1
    assert [tag for tag, _ in tags].count("style") == 1
    assert not {tag for tag, _ in tags} & {"img", "iframe", "base", "form", "object", "embed", "foreignobject"}
    for tag, attributes in tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", "the policy would refuse it"
            assert name != "srcdoc"
            if name in ("href", "src", "action", "xlink:href"):
                assert value is not None
                assert value.startswith("#") or value == "data:,", (tag, name, value)
            # No text of the catalog or the model stands in an attribute, however well it is escaped.
            assert "hacked" not in (value or ""), (tag, name)
            assert "evil" not in (value or ""), (tag, name)
    assert "{{ 7 * 7 }}" in page, "a template's signs are text, too"
    assert not any(character in page for character in "\x00\x07\x9b\u202e\u2066\u2069\ufeff\u2028")
    assert "U+202E" in page


def test_nothing_of_a_hostile_catalog_becomes_markdown(hostile: Path) -> None:
    text = render_markdown(facts_of(hostile))
    assert "<script" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    lines = text.splitlines()
    assert sum(line.startswith("# ") for line in lines) == 1
    widths = {line.count("|") - line.count("\\|") for line in lines if line.startswith("|") and "U+202E" not in line}
    assert widths <= {3, 4, 5, 9, 12}, "no cell broke its table"


@pytest.mark.parametrize("text", ["# head", "- item", "1. one", "[a](javascript:b)", "a|b", "`c`", "*d*", "x\ny"])
def test_markdown_is_text(text: str) -> None:
    shown = formats.markdown(text)
    assert "\n" not in shown
    assert not shown.startswith(("#", "-", "1."))
    assert not any(f"{sign}" in shown.replace(f"\\{sign}", "") for sign in "[]|`*")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://evil.example/a", "see https:<!-- -->//evil.example/a"),
        ("HTTP://evil.example", "HTTP:<!-- -->//evil.example"),
        ("WWW.evil.example and www.evil.example", "WWW<!-- -->.evil.example and www<!-- -->.evil.example"),
        ("a@evil.example", "a@<!-- -->evil.example"),
        ("<https://evil.example>", "&lt;https:<!-- -->//evil.example\\>"),
        ("a www b: // c", "a www b: // c"),
    ],
)
def test_no_address_of_a_catalog_becomes_a_link(text: str, expected: str) -> None:
    assert formats.markdown(text) == expected


def test_json_holds_what_the_page_shows(run: Path, tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Chile"})
    facts = facts_of(run, gold=str(gold))
    data, page, text = json.loads(render_json(facts)), render_html(facts), render_markdown(facts)
    assert data["account"]["money"]["per_1k"] == pytest.approx(36)
    for shown in (
        formats.usd(data["account"]["money"]["billed"]),
        formats.usd(data["account"]["money"]["per_1k"]),
        formats.hours(data["account"]["time"]["billed"]),
        formats.number(data["account"]["products_per_second"]),
        formats.rate(data["quality"]["f1"]["value"]),
        formats.usd(data["categories"][0]["usd"]),
        formats.usd(data["outlook"]["deadlines"][0]["usd"]),
    ):
        assert shown in page
        assert shown in text
    assert data["sample"]["products"][0]["fields"][0]["segments"][0]["text"]
    assert data["account"]["started_at"] == "2026-11-01T12:00:00+00:00"


def test_markdown_holds_what_the_page_shows(decoded_run: Path, tmp_path: Path) -> None:
    place = decoded_run.with_name("run.pilot")
    place.mkdir()
    (place / "forecast.json").write_bytes(forecast().to_json())
    gold = write_gold(tmp_path / "gold.jsonl", {"c0": "Peru", "c1": "Chile", "c3": None})
    facts = facts_of(decoded_run, gold=str(gold), compare=[str(decoded_run)])
    text = render_markdown(facts)
    quality, expected = facts.quality, facts.forecast
    assert quality is not None
    assert expected is not None
    for rate in (quality.precision, quality.recall, quality.f1):
        assert f"{rate.value:.3f} \\[{rate.low:.3f}, {rate.high:.3f}\\]" in text
    for shown in ("| inside |", "| outside |", "Assumed, not measured:", *expected.assumed, "10 steps", "2 engines"):
        assert shown in text
    assert f"| absent ones that got a value | {formats.share(quality.hallucination_rate)} |" in text
    assert "| 0.25 – 0.50 | 3 | 33.3% |" in text
    assert f"| Coffee | {formats.hours(7)} | {formats.hours(6.5)} – {formats.hours(8)} |" in text
    assert f"{formats.size(2000)} read" in text
    assert "J, the products in a prompt" in text


def test_many_categories_do_not_make_a_page_without_end(decoded_run: Path) -> None:
    facts, found = facts_of(decoded_run), []
    first = facts.categories[0]
    for number in range(5000):
        found.append(dataclasses.replace(first, category=f"Category {number}"))
    expected, _ = verdicts(decoded_run, forecast())
    lines = tuple(dataclasses.replace(expected.categories[0], what=f"Category {number}") for number in range(5000))
    facts = dataclasses.replace(
        facts, categories=tuple(found), forecast=dataclasses.replace(expected, categories=lines)
    )
    page, text = page_text(facts), render_markdown(facts)
    for shown in (page, text):
        assert shown.count("Category 299 ") == 2
        assert "Category 300 " not in shown
        assert shown.count("4,700 others") == 2
        assert formats.number(4700 * first.products) in shown
        assert formats.usd(4700 * (first.usd or 0)) in shown
        assert formats.hours(4700 * 7.0) in shown
        assert "All are in report.json." in shown
    assert len(render_html(facts)) < 600_000
    assert len(json.loads(render_json(facts))["categories"]) == 5000


def test_the_command_writes_three_files_beside_the_run_or_elsewhere(run: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, str(ROOT / "pipelines/report.py"), str(run), "--usd-per-hour", "2"]
    ended = subprocess.run(
        arguments, capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"COLUMNS": "20"}
    )
    assert "6 products: $0.100" in ended.stdout
    for name in ("report.html", "report.json", "report.md"):
        assert (run / name).stat().st_size > 1000
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    code, text = ask(run, "--out", tmp_path / "elsewhere", "--json", "--sample", 1)
    assert code == 0
    data = json.loads(text)
    assert data["files"][-1] == f"{tmp_path}/elsewhere/report.html"
    assert data["totals"]["decoded"] == 5
    assert data["sample"]["size"] == 1
    assert before == {path: path.stat().st_mtime_ns for path in run.iterdir()}
    assert "Report: " in ask(run, "--brief")[1]


def test_numbers_as_people_write_them() -> None:
    assert [formats.usd(each) for each in (None, 0, 0.16, 0.0329, 0.000394, 1, 12.345, 12_345.6)] == [
        *("–", "$0", "$0.160", "$0.0329", "$0.000394", "$1.00", "$12.35", "$12,346"),
    ]
    assert [formats.hours(each) for each in (None, 0, 0.5, 59.94, 90, 3600, 5400, 720_000)] == [
        *("–", "0 s", "0.500 s", "59.9 s", "1.5 min", "1 h", "1.5 h", "200 h"),
    ]
    assert [formats.number(each) for each in (0, 5, 12_345, 2.6094, 35.71, 123.4, 0.00012)] == [
        *("0", "5", "12,345", "2.61", "35.7", "123.4", "0.000120"),
    ]
    assert [formats.usd(each) for each in (-0.17, -2, -12_345, -0.0)] == ["-$0.170", "-$2.00", "-$12,345", "$0"]
    assert [formats.share(each) for each in (0, 0.0001, 0.1234, 0.9994, 0.9996, 0.99999, 1 + 1e-12)] == [
        *("0%", "<0.1%", "12.3%", "99.9%", ">99.9%", ">99.9%", "100%"),
    ]
    assert formats.probability(0.001) == "<0.01"
    assert formats.size(5 * 2**20) == "5.0 MiB"
