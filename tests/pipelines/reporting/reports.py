"""The runs that are reported in the tests, what is changed in them, and how a report is asked for."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from pipelines import report
from pipelines.reporting.cost_facts import ForecastFacts
from pipelines.reporting.forecast import CategoryForecast, Forecast, Interval, Price
from pipelines.reporting.gather_facts import ReportWishes, gather
from pipelines.reporting.page import render_html, render_json
from pipelines.reporting.report_facts import Facts
from tests.pipelines.reporting.made_runs import Answer, Product, metrics, write_run


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


def change_metrics(run: Path, shard: int, **changes: Any) -> None:
    """Other numbers for one shard."""
    path = run / "metrics" / f"part-{shard:06d}.parquet"
    part = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist([row | changes for row in part.to_pylist()], part.schema), path)


def change_answers(run: Path, **changes: Any) -> None:
    """The same in every row of the attributes."""
    for path in (run / "attributes").glob("*.parquet"):
        part = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist([row | changes for row in part.to_pylist()], part.schema), path)


def undo(run: Path, shard: int) -> None:
    """The run as it was before its last shard was committed; the shard's parts are published already."""
    (run / "manifest.json").unlink()
    (run / "_shards" / f"{shard:06d}.json").unlink()


def write_gold(path: Path, origins: dict[str, str | None]) -> Path:
    lines = [
        {"product_id": name, "category": "Coffee", "values": {"Origin": None if origin is None else [origin]}}
        for name, origin in origins.items()
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


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
        work_hours=Interval(99 / 3600, 90 / 3600, 100 / 3600),
        prefix_hours=3 / 3600,
        load_seconds=15.0,
        utilisation=0.5,
        utilisation_source="assumed",
        engines=2,
        price=Price(usd, "a table", engines_per_node=4),
        categories=[CategoryForecast("Coffee", 4, 10, Interval(7 / 3600, 6.5 / 3600, 8 / 3600))],
        tokens={"document": 50.0, "key": 20.0, "value": 20.0},
        assumed=["engines wait half of their time"],
    )


def facts_of(run: Path, **wishes: Any) -> Facts:
    return gather(str(run), ReportWishes(**wishes))


def verdicts(run: Path, expected: Forecast) -> tuple[ForecastFacts, set[bool | None]]:
    """The forecast's facts, and what the JSON says of it."""
    place = run.with_name("f.json")
    place.write_bytes(expected.to_json())
    facts = facts_of(run, forecast=str(place))
    assert facts.forecast is not None
    data = json.loads(render_json(facts))["forecast"]
    return facts.forecast, {line["is_inside"] for line in data["lines"]}


def page_text(facts: Facts) -> str:
    """What a reader sees of the page, without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", " ", render_html(facts)))


def ask(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(report.app, [str(each) for each in arguments])
    return result.exit_code, result.output
