"""Dead-lettered rows that are tried once more."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.pipelines.conftest import SCHEMAS, Workplace, product, read_table

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
