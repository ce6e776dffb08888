"""The rows and answers of two runs, joined out of core.

Runs may have more answers than fit into memory (5 million products of 10 attributes: 100 million rows). They are read a
part at a time, reduced to what is compared, and joined by DuckDB in a database in the temporary folder: above
`MEMORY_LIMIT` it spills to disk. What grows with the runs is disk space alone; in memory there is at most that limit,
one part of one table, and what grows with the number of attributes: counts and examples.

    rows_a, rows_b          id, where the row stands, whose it is, the hash of its text
    pairs                   rows of both; a pair has the id of A's row
    answers_a, answers_b    of the pairs: status, set of items, decision and whether a person gave it
    compared                both answers of an attribute, reduced to what is counted
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.comparing.answer_changes import STATUSES, WRITTEN_STATUSES, Cell, Moments, TrustChange
from pipelines.comparing.compared_run import Side
from pipelines.errors import UsageError
from pipelines.quality.run_answers import RowKey

MEMORY_LIMIT = "2GB"  # of DuckDB
_MAX_THREADS = 8  # each needs memory of its own
_MAX_NAMES = 5  # doubled ids that are named

_SIDES = ("a", "b")
_EVIDENCE_STARTS = "evidence.list.element.start"  # enough to see whether there is any


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Every row of both runs, by where it is found again.

    Attributes:
        matched_by: "row": by file and row number, because both have read the same files; else "product_id".
        rows_a, rows_b: all rows, dead-lettered ones included.
        both: rows of A that are one row of B.
        only_a, only_b: rows of one run that the other does not have.
        doubled_a, doubled_b: rows of both whose product id is doubled in one of them, so that nobody can tell which
            belongs to which; `doubled_ids` names some.
        no_id_a, no_id_b: rows without a product id to match them by.
        text_changed: of `both`, rows whose text or category has changed: another answer is not the model's doing.
        dead_a, dead_b, dead_both: of `both`, rows that are dead-lettered in A alone, in B alone, in both.
        carried_a, carried_b: of `both`, products that the run took over as a whole from an earlier one.
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
class Place:
    """Where a pair's row stands in one run."""

    shard: int
    key: RowKey


@dataclass(frozen=True, slots=True)
class Sampled:
    """An attribute that the two runs answer differently."""

    category: str
    attribute: str
    product_id: str
    a: Place
    b: Place


@dataclass(slots=True)
class _Codes:
    """Names as numbers, given as they come: they take less space, and joins compare them faster."""

    names: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def encode(self, column: pa.ChunkedArray) -> pa.Array:
        """The numbers of the names in `column`; null stays null."""
        for name in pc.unique(column).to_pylist():
            if name is not None and name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
        codes = pc.index_in(column, value_set=pa.array(self.names, column.type)).cast(pa.int32())
        return codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes


class Join:
    """Two runs, joined. To be used as a context: it keeps a database in the temporary folder."""

    def __init__(self, a: Side, b: Side, by_row: bool, folder: Path) -> None:
        self._sides = {"a": a, "b": b}
        self._key = "file, source_row" if by_row else "product_id"
        self._by_row = by_row
        self._files, self._categories, self._attributes, self._runs = _Codes(), _Codes(), _Codes(), _Codes()
        # First id of every shard, to find the shard of a row again.
        self._starts: dict[str, list[int]] = {"a": [], "b": []}
        self._database = duckdb.connect(
            str(folder / "compared.duckdb"),
            config={
                "memory_limit": MEMORY_LIMIT,
                "threads": min(_MAX_THREADS, os.cpu_count() or 1),
                "temp_directory": str(folder / "spilled"),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )

    @classmethod
    @contextlib.contextmanager
    def of(cls, a: Side, b: Side, by_row: bool) -> Iterator[Join]:
        """Reads and joins both runs. Raises `UsageError` if they cannot be read or have no row in common."""
        with tempfile.TemporaryDirectory(prefix="hpd-compare-") as folder:
            join = cls(a, b, by_row, Path(folder))
            try:
                join._build()
                yield join
            except duckdb.Error as error:
                raise UsageError(f"cannot compare the runs: {error}") from error
            finally:
                join._database.close()

    def _build(self) -> None:
        names = ", ".join(f"'{status}'" for status in STATUSES)
        self._database.execute(f"create type status as enum ({names})")
        for name in _SIDES:
            self._load_rows(name)
        self._pair()
        self._load_answers("a")
        self._load_answers("b")
        self._compare()

    def _load_rows(self, name: str) -> None:
        side, columns = self._sides[name], ["source_file", "source_row", "product_id", "category"]
        self._database.execute(
            f"create table rows_{name} (id bigint, file integer, source_row bigint, product_id varchar, "
            "category integer, input_hash varchar, is_carried boolean, is_dead boolean)"
        )
        start = 0
        for shard in side.shards:
            products = side.read("products", shard, [*columns, "input_hash", "carried_from"])
            dead = side.read("dead_letter", shard, columns)
            self._starts[name].append(start)
            for table, is_dead in ((products, False), (dead, True)):
                number = table.num_rows
                nothing = pa.nulls(number)
                self._insert(
                    f"rows_{name}",
                    {
                        "id": np.arange(start, start + number),
                        "file": self._files.encode(table["source_file"]),
                        "source_row": table["source_row"],
                        "product_id": table["product_id"],
                        "category": self._categories.encode(table["category"]),
                        "input_hash": nothing.cast(pa.string()) if is_dead else table["input_hash"],
                        "is_carried": nothing.cast(pa.bool_()) if is_dead else pc.is_valid(table["carried_from"]),
                        "is_dead": np.full(number, is_dead),
                    },
                )
                start += number

    def _insert(self, target: str, columns: Mapping[str, Any]) -> None:
        self._database.register("part", pa.table(dict(columns)))
        self._database.execute(f"insert into {target} select * from part")
        self._database.unregister("part")

    def _pair(self) -> None:
        counted = " full join ".join(
            f"(select {self._key}, count(*) n_{name} from rows_{name} where {self._key.split(',')[0]} is not null "
            f"group by all) {name}"
            for name in _SIDES
        )
        self._database.execute(f"create table keys as select {self._key}, n_a, n_b from {counted} using ({self._key})")
        self._database.execute(
            f"""
            create table pairs as
            select a.id as pair, b.id as id_b, coalesce(a.category, b.category) as category,
                   coalesce(a.input_hash <> b.input_hash, false) as text_changed,
                   a.is_dead as dead_a, b.is_dead as dead_b, a.is_carried as carried_a, b.is_carried as carried_b
            from rows_a a join rows_b b using ({self._key}) join keys k using ({self._key})
            where k.n_a = 1 and k.n_b = 1
            """
        )
        for name in _SIDES:
            # In the order of the run, so that the rows of one part are found without a look at all others.
            self._database.execute(
                f"""
                create table paired_{name} as
                select r.id, p.pair, r.file, r.source_row
                from rows_{name} r join pairs p on r.id = p.{"pair" if name == "a" else "id_b"}
                order by r.id
                """
            )

    def _load_answers(self, name: str) -> None:
        side = self._sides[name]
        columns = ["source_file", "source_row", "attribute", "value_raw", "status", _EVIDENCE_STARTS, "carried_from"]
        columns += ["category", "decision", "source"]
        self._database.execute(
            f"create table answers_{name} (pair bigint, attribute integer, status status, items varchar[], "
            "is_ungrounded boolean, origin integer, is_accepted boolean, is_reviewed boolean)"
        )
        starts = [*self._starts[name], None]
        for shard, (start, stop) in zip(side.shards, itertools.pairwise(starts), strict=True):
            table = side.read("attributes", shard, columns)
            _check_statuses(side, shard, table)
            selected = {
                "file": self._files.encode(table["source_file"]),
                "source_row": table["source_row"],
                "attribute": self._attributes.encode(table["attribute"]),
                "value_raw": table["value_raw"],
                "status": table["status"],
                "is_ungrounded": pc.equal(pc.list_value_length(table["evidence"]), 0),
                "origin": self._runs.encode(table["carried_from"]),
                # Null where nothing was decided, and in runs of before there were decisions.
                "is_accepted": pc.equal(table["decision"].cast(pa.string()), "accept"),
                "is_reviewed": pc.equal(table["source"].cast(pa.string()), "review"),
            }
            self._database.register("part", pa.table(selected))
            self._database.execute(
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
            self._database.unregister("part")

    def _compare(self) -> None:
        run_a, run_b = (self._code_of_run(self._sides[name].run_id) for name in _SIDES)
        asked = {name: self._asked(name) for name in _SIDES}
        # A dead-lettered row has no answer; what its run did not ask for has none for another reason.
        self._database.execute(
            f"""
            create table compared as
            select pair, p.category, attribute, p.text_changed,
                   coalesce(a.status, if(p.dead_a and {asked["a"]}, 'dead_letter', 'not_asked')::status) as status_a,
                   coalesce(b.status, if(p.dead_b and {asked["b"]}, 'dead_letter', 'not_asked')::status) as status_b,
                   coalesce(a.status = b.status and a.items is not distinct from b.items, false) as is_same,
                   coalesce(coalesce(a.origin, {run_a}) = coalesce(b.origin, {run_b})
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
        """A condition: the run asks for an attribute of a pair's category. A run that does not say asks for all."""
        schemas = self._sides[name].schemas
        if schemas is None:
            return "true"
        pairs = [(category, each.name) for category, schema in schemas.items() for each in schema.attributes]
        self._database.execute(f"create table asked_{name} (category integer, attribute integer)")
        self._insert(
            f"asked_{name}",
            {
                "category": self._categories.encode(
                    pa.chunked_array([[category for category, _ in pairs]], pa.string())
                ),
                "attribute": self._attributes.encode(
                    pa.chunked_array([[attribute for _, attribute in pairs]], pa.string())
                ),
            },
        )
        return f"(p.category, attribute) in (select (category, attribute) from asked_{name})"

    def _code_of_run(self, run_id: str) -> int:
        return int(self._runs.encode(pa.chunked_array([[run_id]]))[0].as_py())

    def row_counts(self) -> RowCounts:
        """Every row of both runs in exactly one bucket."""
        doubled = "n_a is not null and n_b is not null and (n_a > 1 or n_b > 1)"
        only_a, only_b, doubled_a, doubled_b = self._one(
            f"""
            select sum(n_a) filter (where n_b is null), sum(n_b) filter (where n_a is null),
                   sum(n_a) filter (where {doubled}), sum(n_b) filter (where {doubled})
            from keys
            """
        )
        doubled_ids = (
            []
            if self._by_row
            else self._rows(f"select product_id from keys where {doubled} order by product_id limit {_MAX_NAMES}")
        )
        first_key = self._key.split(",")[0]
        (rows_a, no_id_a), (rows_b, no_id_b) = (
            self._one(f"select count(*), count(*) filter (where {first_key} is null) from rows_{name}")
            for name in _SIDES
        )
        both, text_changed, dead_a, dead_b, dead_both, carried_a, carried_b = self._one(
            """
            select count(*), count(*) filter (where text_changed), count(*) filter (where dead_a and not dead_b),
                   count(*) filter (where dead_b and not dead_a), count(*) filter (where dead_a and dead_b),
                   count(*) filter (where carried_a), count(*) filter (where carried_b)
            from pairs
            """
        )
        return RowCounts(
            matched_by="row" if self._by_row else "product_id",
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

    def cells(self) -> list[Cell]:
        """All answers of the pairs, counted."""
        rows = self._rows(
            """
            select category, attribute, text_changed, status_a, status_b, is_same, same_decode, count(*),
                   if(count(ungrounded_a) > 0, count(*) filter (where ungrounded_a), null),
                   if(count(ungrounded_b) > 0, count(*) filter (where ungrounded_b), null)
            from compared group by all order by all
            """
        )
        categories, attributes = self._categories.names, self._attributes.names
        return [Cell(categories[category], attributes[attribute], *rest) for category, attribute, *rest in rows]

    def trust_changes(self) -> list[TrustChange]:
        """For each attribute with some: answers that are trusted otherwise, whether the text is the same or not."""
        sums = ", ".join(f"count(*) filter (where {name})" for name in TrustChange._fields[2:])
        rows = self._rows(
            f"select category, attribute, {sums} from compared where trust_changed group by all order by all"
        )
        categories, attributes = self._categories.names, self._attributes.names
        found = [TrustChange(categories[category], attributes[attribute], *rest) for category, attribute, *rest in rows]
        return sorted(found, key=lambda each: (-sum(each[2:]), each.category, each.attribute))

    def moments(self) -> dict[str, Moments]:
        """For each category, sums over the rows whose text has not changed."""
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
        return {self._categories.names[category]: Moments(*map(int, sums)) for category, *sums in rows}

    def sample(
        self,
        order: Sequence[tuple[str, str]],
        limit: int,
        seed: int,
        labelled: Iterable[RowKey],
        *,
        text_changed: bool = False,
    ) -> list[Sampled]:
        """At most `limit` answers that differ, or are trusted otherwise, drawn by a hash of `seed` and row.

        Rows that were dead-lettered are none of them.

        Args:
            order: (category, attribute) pairs: one of each is drawn, then a second, and so on; sorted by this order.
            labelled: rows of A that are drawn before all others. Then come answers that differ.
            text_changed: those of rows whose text has changed, else those of the others.
        """
        if limit == 0:
            return []
        known = [(key.source_file, key.source_row) for key in labelled]
        self._register("labels", ["file", "source_row"], [(file, row) for file, row in known])
        self._register("names", ["attribute", "name"], list(enumerate(self._attributes.names)))
        self._register("files", ["number", "name"], list(enumerate(self._files.names)))
        key = "f.name, r.source_row" if self._by_row else "r.product_id"
        found = self._rows(
            f"""
            select category, attribute, min_by(pair, rank, {limit})
            from (select c.pair, c.category, c.attribute,
                         concat(if(l.file is null, '1', '0'), if(c.is_same, '1', '0'),
                                md5(concat_ws('|', {seed}, n.name, {key}))) as rank
                  from compared c join rows_a r on r.id = c.pair join names n using (attribute)
                  join files f on f.number = r.file
                  left join labels l on l.file = r.file and l.source_row = r.source_row
                  where (not c.is_same or c.trust_changed) and c.text_changed = {text_changed}
                    and c.status_a not in ('not_asked', 'dead_letter')
                    and c.status_b not in ('not_asked', 'dead_letter'))
            group by category, attribute
            """
        )
        names = {
            (self._categories.names[category], self._attributes.names[attribute]): pairs
            for category, attribute, pairs in found
        }
        rounds = itertools.zip_longest(*(names.get(each, []) for each in order))
        drawn = [
            (position, pair) for each_round in rounds for position, pair in enumerate(each_round) if pair is not None
        ][:limit]
        places = self._places([pair for _, pair in drawn])
        found_places = ((order[position], places[pair]) for position, pair in sorted(drawn, key=lambda each: each[0]))
        return [
            Sampled(category, attribute, product_id, place_a, place_b)
            for (category, attribute), (product_id, place_a, place_b) in found_places
        ]

    def _places(self, pairs: Sequence[int]) -> dict[int, tuple[str, Place, Place]]:
        self._register("wanted", ["pair"], [(pair,) for pair in pairs])
        rows = self._rows(
            """
            select pair, a.product_id, a.file, a.source_row, p.id_b, b.file, b.source_row
            from wanted join pairs p using (pair) join rows_a a on a.id = pair join rows_b b on b.id = p.id_b
            """
        )
        return {
            pair: (product_id, self._place("a", pair, file_a, row_a), self._place("b", id_b, file_b, row_b))
            for pair, product_id, file_a, row_a, id_b, file_b, row_b in rows
        }

    def _place(self, name: str, number: int, file: int, row: int) -> Place:
        shard = self._sides[name].shards[bisect.bisect_right(self._starts[name], number) - 1]
        return Place(shard, RowKey(self._files.names[file], row))

    def _register(self, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """A small table of names and numbers."""
        kinds = {"file": pa.string(), "name": pa.string()}
        values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        table = {
            column: pa.array(value, kinds.get(column, pa.int64()))
            for column, value in zip(columns, values, strict=True)
        }
        if "file" in table:
            table["file"] = self._files.encode(pa.chunked_array([table["file"]]))
        self._database.register(name, pa.table(table))

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query).fetchall()

    def _one(self, query: str) -> tuple[Any, ...]:
        (row,) = self._rows(query)
        return row


def _check_statuses(side: Side, shard: int, table: pa.Table) -> None:
    unknown = set(pc.unique(table["status"]).to_pylist()) - set(WRITTEN_STATUSES)
    if unknown:
        raise UsageError(f"{side.uri}, attributes of shard {shard}: status {sorted(unknown)[0]!r} is not known")
