"""The rows and answers of two runs, read one part at a time into the database that joins them.

rows_a, rows_b          id, place of the row, its product, the hash of its text
keys                    number of occurrences of each key in either run
pairs                   rows of both; a pair has the id of A's row
answers_a, answers_b    of the pairs: status, set of items, decision and whether a person gave it
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.comparing.answer_changes import WRITTEN_STATUSES
from pipelines.comparing.join_database import SIDES, JoinDatabase
from pipelines.errors import UsageError
from pipelines.store.run import Run

_EVIDENCE_STARTS = "evidence.list.element.start"  # enough to see whether there is any


def load_rows(db: JoinDatabase, name: str) -> None:
    """Create the rows of the run `name`."""
    side, columns = db.sides[name], ["source_file", "source_row", "product_id", "category"]
    db.execute(
        f"create table rows_{name} (id bigint, file integer, source_row bigint, product_id varchar, "
        "category integer, input_hash varchar, is_carried boolean, is_dead boolean)"
    )
    start = 0
    for shard in side.shards:
        products = side.read("products", shard, [*columns, "input_hash", "carried_from"])
        dead = side.read("dead_letter", shard, columns)
        db.starts[name].append(start)
        for table, is_dead in ((products, False), (dead, True)):
            number = table.num_rows
            nothing = pa.nulls(number)
            db.insert(
                f"rows_{name}",
                {
                    "id": np.arange(start, start + number),
                    "file": db.files.encode(table["source_file"]),
                    "source_row": table["source_row"],
                    "product_id": table["product_id"],
                    "category": db.categories.encode(table["category"]),
                    "input_hash": nothing.cast(pa.string()) if is_dead else table["input_hash"],
                    "is_carried": nothing.cast(pa.bool_()) if is_dead else pc.is_valid(table["carried_from"]),
                    "is_dead": np.full(number, is_dead),
                },
            )
            start += number


def pair_rows(db: JoinDatabase) -> None:
    """Match the rows of both runs."""
    counted = " full join ".join(
        f"(select {db.key}, count(*) n_{name} from rows_{name} where {db.key.split(',')[0]} is not null "
        f"group by all) {name}"
        for name in SIDES
    )
    db.execute(f"create table keys as select {db.key}, n_a, n_b from {counted} using ({db.key})")
    db.execute(
        f"""
        create table pairs as
        select a.id as pair, b.id as id_b, coalesce(a.category, b.category) as category,
               coalesce(a.input_hash <> b.input_hash, false) as text_changed,
               a.is_dead as dead_a, b.is_dead as dead_b, a.is_carried as carried_a, b.is_carried as carried_b
        from rows_a a join rows_b b using ({db.key}) join keys k using ({db.key})
        where k.n_a = 1 and k.n_b = 1
        """
    )
    for name in SIDES:
        # In the order of the run, so that the rows of one part are found without a look at all others.
        db.execute(
            f"""
            create table paired_{name} as
            select r.id, p.pair, r.file, r.source_row
            from rows_{name} r join pairs p on r.id = p.{"pair" if name == "a" else "id_b"}
            order by r.id
            """
        )


def load_answers(db: JoinDatabase, name: str) -> None:
    """Create the answers of the run `name`, whose rows are paired. Raises `UsageError` for an unknown status."""
    side = db.sides[name]
    columns = ["source_file", "source_row", "attribute", "value_raw", "status", _EVIDENCE_STARTS, "carried_from"]
    columns += ["category", "decision", "source"]
    db.execute(
        f"create table answers_{name} (pair bigint, attribute integer, status status, items varchar[], "
        "is_ungrounded boolean, origin integer, is_accepted boolean, is_reviewed boolean)"
    )
    starts = [*db.starts[name], None]
    for shard, (start, stop) in zip(side.shards, itertools.pairwise(starts), strict=True):
        table = side.read("attributes", shard, columns)
        _check_statuses(side, shard, table)
        selected = {
            "file": db.files.encode(table["source_file"]),
            "source_row": table["source_row"],
            "attribute": db.attributes.encode(table["attribute"]),
            "value_raw": table["value_raw"],
            "status": table["status"],
            "is_ungrounded": pc.equal(pc.list_value_length(table["evidence"]), 0),
            "origin": db.runs.encode(table["carried_from"]),
            # Null where nothing was decided, and in runs of before there were decisions.
            "is_accepted": pc.equal(table["decision"].cast(pa.string()), "accept"),
            "is_reviewed": pc.equal(table["source"].cast(pa.string()), "review"),
        }
        with db.part(pa.table(selected)):
            db.execute(
                f"""
                insert into answers_{name}
                select r.pair, p.attribute, any_value(p.status)::status,
                       list_sort(list(distinct p.value_raw) filter (where p.status = 'value')),
                       bool_or(p.is_ungrounded), any_value(p.origin),
                       bool_and(p.is_accepted), coalesce(bool_or(p.is_reviewed), false)
                from part p join paired_{name} r using (file, source_row)
                where r.id >= {start} {"" if stop is None else f"and r.id < {stop}"}
                group by r.pair, p.attribute
                """
            )


def _check_statuses(side: Run, shard: int, table: pa.Table) -> None:
    unknown = set(pc.unique(table["status"]).to_pylist()) - set(WRITTEN_STATUSES)
    if unknown:
        raise UsageError(f"{side.uri}, attributes of shard {shard}: status {sorted(unknown)[0]!r} is not known")
