from __future__ import annotations

import pytest

from pipelines.store.tables import TABLES, to_table


def test_tables_refuse_unknown_columns_and_forbidden_nulls() -> None:
    assert to_table("dead_letter", []).schema == TABLES["dead_letter"]
    row = {"run_id": "r", "source_file": "f", "source_row": 1, "stage": "prepare", "error_code": "x", "error": "y"}
    assert to_table("dead_letter", [row | {"attempts": 1}]).num_rows == 1
    with pytest.raises(ValueError, match="column 'attempts': null is not allowed"):
        to_table("dead_letter", [row])
    with pytest.raises(ValueError, match=r"has no column \['colour'\]"):
        to_table("dead_letter", [row | {"attempts": 1, "colour": "red"}])
