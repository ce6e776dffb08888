"""Dead-lettered rows that are tried once more."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.sharding import plan_shards
from pipelines.config.operation import ShardConfig
from pipelines.errors import UsageError
from pipelines.job.preflight import plan_job
from tests.pipelines.conftest import SCHEMAS, Workplace, product, products, read_table

HATS = {3, 4, 11, 19, 30}


def rows(count: int = 36) -> list[Any]:
    return [product(number, category="Hats") if number in HATS else product(number) for number in range(count)]


def teach_hats(workplace: Workplace) -> None:
    document = copy.deepcopy(SCHEMAS)
    document["categories"]["Hats"] = [{"name": "Brand"}]
    (workplace.folder / "schemas.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


@pytest.mark.parametrize("form", [pytest.param("parquet", marks=pytest.mark.full), "jsonl"])
def test_only_the_failed_rows_are_taken(workplace: Workplace, form: str) -> None:
    if form == "parquet":
        workplace.write_parquet("a.parquet", rows(20), row_group_size=7)
        workplace.write_parquet("b.parquet", rows()[20:], row_group_size=7)
    else:
        workplace.write_jsonl("a.jsonl", [*rows()[:10], "", *rows()[10:], '{"broken"'])
    first, again = workplace.folder / "first", workplace.folder / "again"
    outcome = workplace.run(output=str(first), max_dead_letter_share=1)
    assert outcome.totals.reasons["no_schema"] == len(HATS)
    teach_hats(workplace)
    outcome = workplace.run(output=str(again), retry_failed=str(first), max_dead_letter_share=1)
    assert outcome.discrepancy is None
    assert outcome.totals.products == len(HATS)
    assert dict(outcome.totals.reasons) == ({} if form == "parquet" else {"broken_line": 1})

    dead = {(row["source_file"], row["source_row"]) for row in read_table(first, "dead_letter")}
    taken = [row for table in ("products", "dead_letter") for row in read_table(again, table)]
    assert {(row["source_file"], row["source_row"]) for row in taken} == dead
    assert {row["product_id"] for row in read_table(again, "products")} == {f"p{number}" for number in HATS}
    # Together the two runs hold every product once.
    ids = [row["product_id"] for folder in (first, again) for row in read_table(folder, "products")]
    assert sorted(ids) == sorted(f"p{number}" for number in range(36))
    assert workplace.run(output=str(again), retry_failed=str(first), max_dead_letter_share=1).was_finished


@pytest.mark.full
def test_a_run_without_failures_leaves_nothing_to_do(workplace: Workplace) -> None:
    workplace.write_jsonl("a.jsonl", products(4))
    first = workplace.folder / "first"
    workplace.run(output=str(first))
    outcome = workplace.run(output=str(workplace.folder / "again"), retry_failed=str(first))
    assert outcome.discrepancy is None
    assert outcome.totals.rows == 0


@pytest.mark.full
def test_a_changed_catalog_is_refused(workplace: Workplace) -> None:
    path = workplace.write_jsonl("a.jsonl", rows())
    first = workplace.folder / "first"
    workplace.run(output=str(first), max_dead_letter_share=1)
    workplace.write_jsonl("a.jsonl", rows()[1:])
    with pytest.raises(UsageError, match=f"{path} has changed.*--base {first}"):
        plan_job(workplace.config(retry_failed=str(first)))


def test_what_is_no_finished_run_is_refused(workplace: Workplace, tmp_path: Path) -> None:
    workplace.write_jsonl("a.jsonl", rows())
    with pytest.raises(UsageError, match="there is no run in"):
        plan_job(workplace.config(retry_failed=str(tmp_path / "nowhere")))
    with pytest.raises(UsageError, match="exclude each other"):
        workplace.config(retry_failed="x", base="y")


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_selected_rows_are_planned_once_each(workplace: Workplace, form: str) -> None:
    wanted = [0, 1, 5, 6, 7, 20, 21, 39]
    if form == "parquet":
        path = workplace.write_parquet("a.parquet", products(40), row_group_size=6)
    else:
        path = workplace.write_jsonl("a.jsonl", products(40))
    config = workplace.config()
    files = scan_sources(config.input).files
    for target, limit in ((10**6, None), (60, None), (1, None), (60, 5)):
        shards = plan_shards(files, ShardConfig(target_tokens=target, ramp=()), 20, 2, limit, {str(path): wanted})
        found = [
            row.number
            for shard in shards
            for piece in shard.pieces
            for row in read_piece(str(path), form, piece, ["id"])
        ]
        assert found == wanted[:limit]
        assert sum(shard.num_rows for shard in shards) == len(found)
