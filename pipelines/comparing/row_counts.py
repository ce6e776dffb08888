"""Row counts of two runs, by how the rows match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.comparing.join_database import SIDES, JoinDatabase

_MAX_NAMES = 5  # doubled ids that are named


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Row counts of both runs, by how the rows match.

    Attributes:
        matched_by: "row": by file and row number, because both runs read the same files; else "product_id".
        rows_a, rows_b: all rows, dead-lettered ones included.
        both: rows of A that match one row of B.
        only_a, only_b: rows of one run that the other lacks.
        doubled_a, doubled_b: rows of both whose product id is duplicated in one of them, so that the match is
            ambiguous; `doubled_ids` names some.
        no_id_a, no_id_b: rows without a product id to match them by.
        text_changed: rows in `both` whose text or category changed, so that another answer is not due to the model.
        dead_a, dead_b, dead_both: rows in `both` that are dead-lettered in A alone, in B alone, in both.
        carried_a, carried_b: products in `both` that the run carried over as a whole from an earlier one.
    """

    matched_by: str
    rows_a: int
    rows_b: int
    both: int
    only_a: int
    only_b: int
    doubled_a: int
    doubled_b: int
    doubled_ids: Sequence[str]
    no_id_a: int
    no_id_b: int
    text_changed: int
    dead_a: int
    dead_b: int
    dead_both: int
    carried_a: int
    carried_b: int


def count_rows(db: JoinDatabase) -> RowCounts:
    """Count every row of both runs in exactly one bucket."""
    doubled = "n_a is not null and n_b is not null and (n_a > 1 or n_b > 1)"
    only_a, only_b, doubled_a, doubled_b = db.one(
        f"""
        select sum(n_a) filter (where n_b is null), sum(n_b) filter (where n_a is null),
               sum(n_a) filter (where {doubled}), sum(n_b) filter (where {doubled})
        from keys
        """
    )
    doubled_ids = (
        []
        if db.by_row
        else db.rows(f"select product_id from keys where {doubled} order by product_id limit {_MAX_NAMES}")
    )
    first_key = db.key.split(",")[0]
    (rows_a, no_id_a), (rows_b, no_id_b) = (
        db.one(f"select count(*), count(*) filter (where {first_key} is null) from rows_{name}") for name in SIDES
    )
    both, text_changed, dead_a, dead_b, dead_both, carried_a, carried_b = db.one(
        """
        select count(*), count(*) filter (where text_changed), count(*) filter (where dead_a and not dead_b),
               count(*) filter (where dead_b and not dead_a), count(*) filter (where dead_a and dead_b),
               count(*) filter (where carried_a), count(*) filter (where carried_b)
        from pairs
        """
    )
    return RowCounts(
        matched_by="row" if db.by_row else "product_id",
        rows_a=rows_a,
        rows_b=rows_b,
        both=both,
        only_a=int(only_a or 0),
        only_b=int(only_b or 0),
        doubled_a=int(doubled_a or 0),
        doubled_b=int(doubled_b or 0),
        doubled_ids=[name for (name,) in doubled_ids],
        no_id_a=no_id_a,
        no_id_b=no_id_b,
        text_changed=text_changed,
        dead_a=dead_a,
        dead_b=dead_b,
        dead_both=dead_both,
        carried_a=carried_a,
        carried_b=carried_b,
    )
