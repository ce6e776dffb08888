from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.console import progress
from pipelines.console.progress import Speed, Watched, progress_line, show_progress
from pipelines.job.terminal_run import preview_table
from pipelines.store.folders import Folder
from pipelines.store.tables import TABLES, to_table
from pipelines.store.totals import Totals, loading_note
from tests.pipelines.commands import wait_until
from tests.tables import table


def shard(rows: int, dead: int) -> dict[str, Any]:
    counts = {
        "rows": rows,
        "products": rows - dead,
        "dead_letters": dead,
        "statuses": {"value": rows - dead},
        "reasons": {"null_id": dead},
    }
    return {"counts": counts, "metrics": {"busy_seconds": 0.5, "value_tokens": 3}}


def test_totals_add_up_and_travel() -> None:
    totals = Totals()
    totals.add(shard(5, 1))
    totals.add(shard(3, 0))
    assert (totals.rows, totals.products, totals.dead_letters, totals.dead_letter_share) == (8, 7, 1, 0.125)
    assert totals.metrics == Counter(busy_seconds=1.0, value_tokens=6)
    assert Totals.from_dict(totals.to_dict()) == totals
    assert totals.discrepancy(2, 8) is None
    assert totals.discrepancy(3, 8) == "3 shards were planned, 2 are committed"
    assert totals.discrepancy(2, 9) == "9 rows were planned, 8 went in"
    totals.products -= 1
    assert totals.discrepancy(2, 8) == "8 rows went in, 6 products and 1 dead letters came out"


@table(
    ("load", "billed", "note"),
    [
        (45.0, 60.0, "75% of it loading, paid once an engine however many products there are"),
        (12.0, 60.0, "20% of it loading, paid once an engine however many products there are"),
        (11.0, 60.0, ""),
        (0.0, 0.0, ""),
    ],
)
def test_the_price_of_a_small_run_is_told_as_what_it_is(load: float, billed: float, note: str) -> None:
    assert loading_note(load, billed) == note


def test_time_left_is_told_from_the_pace_after_the_first_products(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    totals = Totals(rows=10, products=10)
    watched = Watched("waiting for Ray")
    speed = Speed(totals, 110, lambda: watched)
    assert "10 of 110 products (9%), starting: waiting for Ray, 0 s, 0 dead-lettered" in progress_line(110, speed)
    now, watched = 160.0, Watched("loading the model tiny")
    assert speed.describe(speed.rows) == "starting: loading the model tiny, 1 min 00 s, 0 dead-lettered"
    watched = Watched("first shards", 18)
    assert speed.describe(speed.rows) == "0.3 products/s, 0 dead-lettered", "decoded, not committed"
    watched = Watched("first shards", 0)
    totals.add(shard(20, 2))
    now = 170.0
    totals.add(shard(20, 0))
    assert speed.products_per_second == pytest.approx(38 / 70)
    assert "50 of 110 products (45%), 0.5 products/s, 27 s left, 2 dead-lettered" in progress_line(110, speed)
    watched = Watched("first shards", 1000)
    assert speed.rows == 110


@table("is_terminal", [True, False])
def test_a_terminal_gets_a_bar_and_a_file_gets_lines(is_terminal: bool) -> None:
    stream, totals = io.StringIO(), Totals()
    console = Console(file=stream, force_terminal=is_terminal, width=120)
    with show_progress(console, totals, 8, 0.01, lambda: Watched("first shards")):
        totals.add(shard(8, 1))
        # A line is written by a thread, the bar's last state at the end.
        wait_until(lambda: is_terminal or all(each in stream.getvalue() for each in ("8 of 8", "1 dead-lettered")))
    text = stream.getvalue()
    assert ("\x1b[" in text) is is_terminal
    assert ("8/8" if is_terminal else "8 of 8 products (100%)") in text
    assert "1 dead-lettered" in text


def test_tables_refuse_unknown_columns_and_forbidden_nulls() -> None:
    assert to_table("dead_letter", []).schema == TABLES["dead_letter"]
    row = {"run_id": "r", "source_file": "f", "source_row": 1, "stage": "prepare", "error_code": "x", "error": "y"}
    assert to_table("dead_letter", [row | {"attempts": 1}]).num_rows == 1
    with pytest.raises(ValueError, match="column 'attempts': null is not allowed"):
        to_table("dead_letter", [row])
    with pytest.raises(ValueError, match=r"has no column \['colour'\]"):
        to_table("dead_letter", [row | {"attempts": 1, "colour": "red"}])


def test_the_preview_shows_products_of_different_categories(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert preview_table(Folder(str(tmp_path)), 3) is None
    common = {"run_id": "r", "source_file": "f", "model_id": "m", "schema_hash": "s", "prompt_hash": "p"}
    common |= {"layout": "tree", "input_hash": "h"}
    counts = {f"num_{status}": 0 for status in ("value", "absent", "truncated", "invalid")}
    identity = [{"source_row": number, "product_id": f"id{number}", "category": "AAB"[number]} for number in range(3)]
    rows = [common | product | counts | {"values": []} for product in identity]
    value = {"attribute": "Brand", "value_index": 0, "num_tokens": 3, "num_dropped": 0, "logprob_mean": -0.1}
    place = {"start": 0, "end": 5, "text": "Velor", "match": "exact"}
    places = [place | {"field": field} for field in ("title", "title", "text")]
    answers = [
        {"status": "value", "value_raw": "Velor", "evidence": places},
        {"status": "absent", "probability": 0.61},
        {"status": "invalid", "value_raw": "{"},
    ]
    attributes = [common | product | value | answer for product, answer in zip(identity, answers, strict=True)]
    for name, content in (("products", rows), ("attributes", attributes)):
        (tmp_path / name).mkdir()
        pq.write_table(to_table(name, content), tmp_path / name / "part-000000.parquet")
    for count, expected in ((2, ["id0", "id2"]), (9, ["id0", "id2", "id1"])):
        stream = io.StringIO()
        Console(file=stream, width=100).print(preview_table(Folder(str(tmp_path)), count))
        text = stream.getvalue()
        assert sorted(expected, key=text.index) == expected
        assert ("id1" in text) is (count == 9)
    assert re.search(r"Velor +title, text +0\.74", text)
    assert re.search(r"not stated +0\.61", text), "a closed answer has a probability of its own"
    assert "invalid: {" in text
    part = tmp_path / "attributes/part-000000.parquet"
    pq.write_table(pq.read_table(part).drop_columns(["probability"]), part)
    stream = io.StringIO()
    Console(file=stream, width=100).print(preview_table(Folder(str(tmp_path)), 9))
    assert re.search(r"not stated +0\.74", stream.getvalue()), "an older run"
