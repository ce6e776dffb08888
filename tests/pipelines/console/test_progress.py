from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pipelines.store.tables import TABLES, to_table
from pipelines.store.totals import Totals


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


def test_tables_refuse_unknown_columns_and_forbidden_nulls() -> None:
    assert to_table("dead_letter", []).schema == TABLES["dead_letter"]
    row = {"run_id": "r", "source_file": "f", "source_row": 1, "stage": "prepare", "error_code": "x", "error": "y"}
    assert to_table("dead_letter", [row | {"attempts": 1}]).num_rows == 1
    with pytest.raises(ValueError, match="column 'attempts': null is not allowed"):
        to_table("dead_letter", [row])
    with pytest.raises(ValueError, match=r"has no column \['colour'\]"):
        to_table("dead_letter", [row | {"attempts": 1, "colour": "red"}])
