"""Out-of-core join of the answers of two runs, in SQL.

Runs may have more answers than fit into memory (5 million products of 10 attributes: 100 million rows). They are read
one part at a time, reduced to the compared columns, and joined by DuckDB in a database in the temporary folder. Only
disk space grows with the runs. Memory holds at most DuckDB's limit, one part of one table, and counts and examples,
which grow with the number of attributes.

    rows_a, rows_b          every row: its place, its product, the hash of its text
    pairs                   rows of both runs that match
    answers_a, answers_b    of the pairs: status, set of items, decision and whether a person gave it
    compared                both answers of an attribute, reduced to the counted columns
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.errors import UsageError
from pipelines.evaluating.answer_changes import STATUSES, WRITTEN_STATUSES, ChangeCell, Moments, TrustChange
from pipelines.job.run import Run
from pipelines.quality.run_answers import RowKey
from pipelines.store.database import temporary_database

_MAX_NAMES = 5  # doubled ids that are named
_SIDES = ("a", "b")
_ROW = ["source_file", "source_row", "product_id", "category"]
_EVIDENCE_STARTS = "evidence.list.element.start"  # enough to see whether there is any


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


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Place of a pair's row in one run."""

    shard: int
    key: RowKey


@dataclass(frozen=True, slots=True)
class Sampled:
    """An attribute that the two runs answer differently."""

    category: str
    attribute: str
    product_id: str
    a: AnswerPlace
    b: AnswerPlace


class JoinedRuns:
    """Two runs joined in a database."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, a: Run, b: Run, *, by_row: bool) -> None:
        """Read and join both runs. Raises `UsageError` if they cannot be read.

        Args:
            by_row: whether rows match by file and row number, else by product id.
        """
        self._runs: Mapping[str, Run] = {"a": a, "b": b}
        self._by_row, self._key = by_row, "source_file, source_row" if by_row else "product_id"
        self._connection = connection
        self._execute(f"create type status as enum ({', '.join(map(repr, STATUSES))})")
        for name in _SIDES:
            self._load_rows(name)
        self._pair_rows()
        for name in _SIDES:
            self._load_answers(name)
        self._compare()

    @classmethod
    @contextlib.contextmanager
    def of(cls, a: Run, b: Run, *, by_row: bool) -> Iterator[JoinedRuns]:
        """Join the runs in a temporary folder. Raises `UsageError` if they cannot be read or joined."""
        try:
            with temporary_database(keeps_order=False) as connection:
                yield cls(connection, a, b, by_row=by_row)
        except duckdb.Error as error:
            raise UsageError(f"cannot compare the runs: {error}") from error

    def row_counts(self) -> RowCounts:
        """Count every row of both runs in exactly one bucket."""
        doubled = "n_a > 0 and n_b > 0 and (n_a > 1 or n_b > 1)"
        counts = self._sums(
            "keys",
            only_a="sum(n_a) filter (where n_b = 0)",
            only_b="sum(n_b) filter (where n_a = 0)",
            doubled_a=f"sum(n_a) filter (where {doubled})",
            doubled_b=f"sum(n_b) filter (where {doubled})",
        )
        counts |= self._sums(
            "pairs",
            both="count(*)",
            text_changed="count(*) filter (where text_changed)",
            dead_a="count(*) filter (where dead_a and not dead_b)",
            dead_b="count(*) filter (where dead_b and not dead_a)",
            dead_both="count(*) filter (where dead_a and dead_b)",
            carried_a="count(*) filter (where carried_a)",
            carried_b="count(*) filter (where carried_b)",
        )
        first = self._key.split(",")[0]
        for name in _SIDES:
            sums = {f"rows_{name}": "count(*)", f"no_id_{name}": f"count(*) filter (where {first} is null)"}
            counts |= self._sums(f"rows_{name}", **sums)
        ids = f"select product_id from keys where {doubled} order by product_id limit {_MAX_NAMES}"
        doubled_ids = [] if self._by_row else [product_id for (product_id,) in self._rows(ids)]
        return RowCounts(matched_by="row" if self._by_row else "product_id", doubled_ids=doubled_ids, **counts)

    def cells(self) -> list[ChangeCell]:
        """Count all answers of the pairs."""
        rows = self._rows(
            """
            select category, attribute, text_changed, status_a, status_b, is_same, same_decode, count(*),
                   if(count(ungrounded_a) > 0, count(*) filter (where ungrounded_a), null),
                   if(count(ungrounded_b) > 0, count(*) filter (where ungrounded_b), null)
            from compared group by all order by all
            """
        )
        return [ChangeCell(*row) for row in rows]

    def trust_changes(self) -> list[TrustChange]:
        """Count answers with another decision or source, by attribute with any, whether or not the text is the same."""
        sums = ", ".join(f"count(*) filter (where {name})" for name in TrustChange._fields[2:])
        rows = self._rows(f"select category, attribute, {sums} from compared where trust_changed group by all")
        found = [TrustChange(*row) for row in rows]
        return sorted(found, key=lambda each: (-sum(each[2:]), each.category, each.attribute))

    def moments(self) -> dict[str, Moments]:
        """Return for each category the sums over the rows whose text has not changed."""
        rows = self._rows(
            """
            select category, count(*), sum(n), sum(x), sum(n * n), sum(x * n), sum(x * x)
            from (select category, count(*) as n, count(*) filter (where is_same) as x
                  from compared
                  where not text_changed and status_a <> 'not_asked' and status_b <> 'not_asked'
                  group by pair, category)
            group by category order by category
            """
        )
        return {category: Moments(*map(int, sums)) for category, *sums in rows}

    def sample(
        self,
        order: Sequence[tuple[str, str]],
        limit: int,
        seed: int,
        labelled: Iterable[RowKey],
        *,
        text_changed: bool = False,
    ) -> list[Sampled]:
        """Draw at most `limit` answers with another value, decision or source, by a hash of `seed` and row.

        Dead-lettered rows are left out.

        Args:
            order: (category, attribute) pairs. One answer of each is drawn, then a second, and so on; sorted by this
                order.
            labelled: rows of A that are drawn before all others. Answers that differ come next.
            text_changed: draw from rows whose text changed; else from the others.
        """
        if limit == 0:
            return []
        files, numbers = zip(*labelled, strict=True) if labelled else ((), ())
        columns = {"file_a": pa.array(files, pa.string()), "row_a": pa.array(numbers, pa.int64())}
        key = "file_a, row_a" if self._by_row else "product_id"
        with self._registered("labels", pa.table(columns)):
            found = self._rows(
                f"""
                select category, attribute, min_by(p, rank, {limit})
                from (select p, c.category, c.attribute,
                             concat(if(l.file_a is null, '1', '0'), if(c.is_same, '1', '0'),
                                    md5(concat_ws('|', {seed}, c.attribute, {key}))) as rank
                      from compared c join pairs p using (pair) left join labels l using (file_a, row_a)
                      where (not c.is_same or c.trust_changed) and c.text_changed = {text_changed}
                        and c.status_a not in ('not_asked', 'dead_letter')
                        and c.status_b not in ('not_asked', 'dead_letter'))
                group by category, attribute
                """
            )
        pairs = {(category, attribute): drawn for category, attribute, drawn in found}
        rounds = itertools.zip_longest(*(pairs.get(each, []) for each in order))
        drawn = [(place, pair) for each in rounds for place, pair in enumerate(each) if pair is not None][:limit]
        return [
            Sampled(
                *order[place],
                pair["product_id"],
                *(
                    AnswerPlace(pair[f"shard_{each}"], RowKey(pair[f"file_{each}"], pair[f"row_{each}"]))
                    for each in _SIDES
                ),
            )
            for place, pair in sorted(drawn, key=lambda each: each[0])
        ]

    def _execute(self, query: str) -> None:
        self._connection.execute(query)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def _sums(self, table: str, **columns: str) -> dict[str, int]:
        (row,) = self._rows(f"select {', '.join(columns.values())} from {table}")
        return {name: int(number or 0) for name, number in zip(columns, row, strict=True)}

    @contextlib.contextmanager
    def _registered(self, name: str, table: pa.Table) -> Iterator[None]:
        self._connection.register(name, table)
        try:
            yield
        finally:
            self._connection.unregister(name)

    def _load_rows(self, name: str) -> None:
        self._execute(
            f"create table rows_{name} (shard integer, source_file varchar, source_row bigint, product_id varchar, "
            "category varchar, input_hash varchar, is_carried boolean, is_dead boolean)"
        )
        run = self._runs[name]
        for shard in run.shards:
            with self._registered("part", run.read("products", shard, [*_ROW, "input_hash", "carried_from"])):
                rest = "input_hash, carried_from is not null, false"
                self._execute(f"insert into rows_{name} select {shard}, {', '.join(_ROW)}, {rest} from part")
            with self._registered("part", run.read("dead_letter", shard, _ROW)):
                self._execute(f"insert into rows_{name} select {shard}, {', '.join(_ROW)}, null, null, true from part")

    def _pair_rows(self) -> None:
        first = self._key.split(",")[0]
        union = " union all ".join(f"select {self._key}, '{name}' as run from rows_{name}" for name in _SIDES)
        self._execute(
            f"""
            create table keys as
            select {self._key}, count(*) filter (where run = 'a') as n_a, count(*) filter (where run = 'b') as n_b
            from ({union}) where {first} is not null group by all
            """
        )
        self._execute(
            f"""
            create table pairs as
            select row_number() over () as pair, a.product_id, coalesce(a.category, b.category) as category,
                   a.shard as shard_a, a.source_file as file_a, a.source_row as row_a,
                   b.shard as shard_b, b.source_file as file_b, b.source_row as row_b,
                   coalesce(a.input_hash <> b.input_hash, false) as text_changed,
                   a.is_dead as dead_a, b.is_dead as dead_b, a.is_carried as carried_a, b.is_carried as carried_b
            from rows_a a join rows_b b using ({self._key}) join keys k using ({self._key})
            where k.n_a = 1 and k.n_b = 1
            """
        )
        for name in _SIDES:
            # In the order of the shards, so that the rows of one part are found without a look at all others.
            self._execute(
                f"create table paired_{name} as select pair, shard_{name} as shard, file_{name} as source_file, "
                f"row_{name} as source_row from pairs order by shard"
            )

    def _load_answers(self, name: str) -> None:
        self._execute(
            f"create table answers_{name} (pair bigint, attribute varchar, status status, items varchar[], "
            "is_ungrounded boolean, origin varchar, is_accepted boolean, is_reviewed boolean)"
        )
        run = self._runs[name]
        columns = ["source_file", "source_row", "attribute", "value_raw", "status", _EVIDENCE_STARTS, "carried_from"]
        for shard in run.shards:
            table = run.read("attributes", shard, [*columns, "category", "decision", "source"])
            if unknown := sorted({*table["status"].unique().to_pylist()} - {*WRITTEN_STATUSES}):
                raise UsageError(f"{run.uri}, attributes of shard {shard}: status {unknown[0]!r} is not known")
            with self._registered("part", table):
                # Null where nothing was decided, and in runs of before there were decisions.
                self._execute(
                    f"""
                    insert into answers_{name}
                    select r.pair, p.attribute, any_value(p.status)::status,
                           list_sort(list(distinct p.value_raw) filter (where p.status = 'value')),
                           bool_or(len(p.evidence) = 0), any_value(p.carried_from),
                           bool_and(p.decision::varchar = 'accept'),
                           coalesce(bool_or(p.source::varchar = 'review'), false)
                    from part p join paired_{name} r using (source_file, source_row)
                    where r.shard = {shard} group by r.pair, p.attribute
                    """
                )

    def _compare(self) -> None:
        run_a, run_b = (self._runs[name].run_id.replace("'", "''") for name in _SIDES)
        asked = {name: self._asked(name) for name in _SIDES}
        # A dead-lettered row has no answer; what its run did not ask for has none for another reason.
        self._execute(
            f"""
            create table compared as
            select pair, p.category, attribute, p.text_changed,
                   coalesce(a.status, if(p.dead_a and {asked["a"]}, 'dead_letter', 'not_asked')::status) as status_a,
                   coalesce(b.status, if(p.dead_b and {asked["b"]}, 'dead_letter', 'not_asked')::status) as status_b,
                   coalesce(a.status = b.status and a.items is not distinct from b.items, false) as is_same,
                   coalesce(coalesce(a.origin, '{run_a}') = coalesce(b.origin, '{run_b}')
                            and (a.origin is not null or b.origin is not null), false)
                   and a.status is not null and b.status is not null as same_decode,
                   a.is_ungrounded as ungrounded_a, b.is_ungrounded as ungrounded_b,
                   -- Where one of the runs has decided nothing, nothing was decided otherwise.
                   coalesce(b.is_accepted and not a.is_accepted, false) as now_accepted,
                   coalesce(a.is_accepted and not b.is_accepted, false) as now_to_review,
                   coalesce(b.is_reviewed, false) and not coalesce(a.is_reviewed, false) as now_reviewed,
                   coalesce(a.is_reviewed, false) and not coalesce(b.is_reviewed, false) as no_longer_reviewed,
                   now_accepted or now_to_review or now_reviewed or no_longer_reviewed as trust_changed
            from answers_a a full join answers_b b using (pair, attribute) join pairs p using (pair)
            """
        )

    def _asked(self, name: str) -> str:
        """Return a SQL condition: the run asks for an attribute of a category. A run without schemas asks for all."""
        schemas = self._runs[name].schemas
        if schemas is None:
            return "true"
        pairs = [(category, each.name) for category, schema in schemas.items() for each in schema.attributes]
        columns = {"category": [category for category, _ in pairs], "attribute": [attribute for _, attribute in pairs]}
        with self._registered(
            "part", pa.table({key: pa.array(column, pa.string()) for key, column in columns.items()})
        ):
            self._execute(f"create table asked_{name} as select * from part")
        return f"(p.category, attribute) in (select (category, attribute) from asked_{name})"
