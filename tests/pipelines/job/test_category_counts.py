"""What `--dry-run` counts: the category of every row, and dead letters, in a large catalog those of a sample."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from pipelines.job import category_counts, summary
from pipelines.job.category_counts import CatalogCounts, count_categories
from pipelines.job.preflight import PlannedJob, plan_job
from tests.pipelines.conftest import Workplace, product, products

SMALL_SHARDS = {"target_tokens": 2_000, "ramp": []}


def dry_run(job: PlannedJob) -> tuple[CatalogCounts, str, Mapping[str, Any]]:
    counts = count_categories(job.plan, job.config.input, job.schemas)
    stream = io.StringIO()
    summary.print_plan(Console(file=stream, width=200), job, counts)
    return counts, stream.getvalue(), summary.plan_json(job, counts)


def write(workplace: Workplace, kind: str, rows: list[dict[str, Any]]) -> None:
    if kind == "parquet":
        workplace.write_parquet("c.parquet", rows, row_group_size=50)
    else:
        workplace.write_jsonl("c.jsonl", rows)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("shards", [SMALL_SHARDS, {"target_tokens": 10**7, "ramp": []}])
def test_of_a_large_one_all_categories_are_counted_and_a_sample_is_checked(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, kind: str, shards: dict[str, Any]
) -> None:
    monkeypatch.setattr(category_counts, "_MAX_CHECKED", 100)
    empty = {"title": None, "bullets": None}
    rows = [product(number, **(empty if number % 4 == 0 else {})) for number in range(1000)]
    rows[999]["category"] = "Hats"
    write(workplace, kind, rows)
    job = plan_job(workplace.config(shards=shards))
    counts, text, answer = dry_run(job)
    assert answer["rows_by_category"] == {"Shoes": 500, "Coffee": 499, "Hats": 1}
    assert 50 <= counts.checked <= 100
    assert answer["rows_checked"] == counts.checked
    assert answer["dead_letters"] == {}
    in_sample = answer["dead_letters_in_sample"]["no_text"]["rows"]
    assert abs(in_sample - counts.checked / 4) <= len(job.plan.shards)
    assert f"of the {counts.checked} rows checked {in_sample} rows will be dead-lettered (no_text): " in text
    assert f"{counts.checked} of 1,000 rows were checked as a run does, of the others only the category" in text
    # What the start of each file says is not among these counts.
    assert any(line.startswith("of 1,000 rows looked at") for line in answer["warnings"])


def test_broken_lines_are_counted_wherever_they_are(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(category_counts, "_MAX_CHECKED", 20)
    rows = [*products(30), *['{"id": "x'] * 30, *[product(number, category=3) for number in range(30)]]
    workplace.write_jsonl("c.jsonl", rows)
    _, text, answer = dry_run(plan_job(workplace.config()))
    assert {reason: told["rows"] for reason, told in answer["dead_letters"].items()} == {
        "broken_line": 30,
        "wrong_type": 30,
    }
    assert "30 rows will be dead-lettered (broken_line): " in text
    assert answer["rows_by_category"] == {"Shoes": 15, "Coffee": 15}


def test_of_many_files_fewer_rows_are_looked_at(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.catalog.input_files._ALL_CHECKED", 60)
    schema = pa.schema({"id": pa.string(), "category": pa.string(), "title": pa.string(), "bullets": pa.string()})
    bad = [product(number, title="", bullets="") for number in range(50)]
    workplace.write_parquet("a.parquet", bad, schema=schema, row_group_size=7)
    workplace.write_jsonl("b.jsonl", bad)
    workplace.write_jsonl("c.jsonl", ["{"] * 25 + products(5))
    (warning,) = plan_job(workplace.config()).sample_warnings
    assert warning.startswith("of 60 rows looked at, the first 20 of each file, 60 will be dead letters: 40 no_text (")
    assert "; 20 broken_line (" in warning


def test_a_damaged_row_group_is_told_before_a_run(workplace: Workplace) -> None:
    path = workplace.write_parquet("c.parquet", products(20), row_group_size=10)
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    (warning,) = plan_job(workplace.config()).sample_warnings
    assert warning.startswith(
        "of 20 rows looked at, the first 1,000 of each file, 10 will be dead letters: 10 unreadable"
    )
    assert "the file is damaged in row group 0" in warning
