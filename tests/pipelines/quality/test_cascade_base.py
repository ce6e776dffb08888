"""A nightly run of a cascade takes over what the one before it has answered, if that was the same cascade."""

from __future__ import annotations

from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.quality.conftest import NUM_PRODUCTS


def test_what_has_not_changed_is_asked_of_neither_model(cascade: Workplace) -> None:
    first, second = (str(cascade.folder / name) for name in ("first", "second"))
    cascade.run(output=first)
    rows = products(NUM_PRODUCTS)
    rows[3] = product(3, title="another title")
    cascade.write_parquet("a.parquet", rows)
    outcome = cascade.run(output=second, base=first)
    assert outcome.totals.carried["products"] == NUM_PRODUCTS - 1
    before = {(row["source_row"], row["attribute"], row["value_index"]): row for row in read_table(first, "attributes")}
    for row in read_table(second, "attributes"):
        if row["source_row"] == 3:
            assert row["carried_from"] is None
            continue
        old = before[row["source_row"], row["attribute"], row["value_index"]]
        # Also who answered, and what that replaced.
        assert {**row, "run_id": None, "carried_from": None} == {**old, "run_id": None, "carried_from": None}
    assert outcome.totals.cascade["answers"] == 2, "those of one product of coffee"
