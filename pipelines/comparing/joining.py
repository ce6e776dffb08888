"""Out-of-core join of the answers of two runs.

Runs may have more answers than fit into memory (5 million products of 10 attributes: 100 million rows). They are read
one part at a time, reduced to the compared columns, and joined by DuckDB in a database in the temporary folder. Only
disk space grows with the runs. Memory holds at most DuckDB's limit, one part of one table, and counts and examples,
which grow with the number of attributes.

    compared    both answers of an attribute, reduced to the counted columns; made of the tables of joined_rows.py
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.comparing.answer_changes import STATUSES, ChangeCell, Moments, TrustChange
from pipelines.comparing.drawn_answers import Sampled, draw_answers
from pipelines.comparing.join_database import SIDES, JoinDatabase
from pipelines.comparing.joined_rows import load_answers, load_rows, pair_rows
from pipelines.comparing.row_counts import RowCounts, count_rows
from pipelines.errors import UsageError
from pipelines.quality.run_answers import RowKey
from pipelines.store.run import Run


class Join:
    """Join of two runs. A context manager: it keeps a database in the temporary folder."""

    def __init__(self, database: JoinDatabase) -> None:
        self._database = database

    @classmethod
    @contextlib.contextmanager
    def of(cls, a: Run, b: Run, by_row: bool) -> Iterator[Join]:
        """Read and join both runs. Raises `UsageError` if they cannot be read or joined."""
        with tempfile.TemporaryDirectory(prefix="hpd-compare-") as folder:
            database = JoinDatabase(a, b, by_row, Path(folder))
            try:
                _build(database)
                yield cls(database)
            except duckdb.Error as error:
                raise UsageError(f"cannot compare the runs: {error}") from error
            finally:
                database.close()

    def row_counts(self) -> RowCounts:
        """Count every row of both runs in exactly one bucket."""
        return count_rows(self._database)

    def cells(self) -> list[ChangeCell]:
        """Count all answers of the pairs."""
        rows = self._database.rows(
            """
            select category, attribute, text_changed, status_a, status_b, is_same, same_decode, count(*),
                   if(count(ungrounded_a) > 0, count(*) filter (where ungrounded_a), null),
                   if(count(ungrounded_b) > 0, count(*) filter (where ungrounded_b), null)
            from compared group by all order by all
            """
        )
        categories, attributes = self._database.categories.names, self._database.attributes.names
        return [ChangeCell(categories[category], attributes[attribute], *rest) for category, attribute, *rest in rows]

    def trust_changes(self) -> list[TrustChange]:
        """Count answers with another decision or source, by attribute with any, whether or not the text is the same."""
        sums = ", ".join(f"count(*) filter (where {name})" for name in TrustChange._fields[2:])
        rows = self._database.rows(
            f"select category, attribute, {sums} from compared where trust_changed group by all order by all"
        )
        categories, attributes = self._database.categories.names, self._database.attributes.names
        found = [TrustChange(categories[category], attributes[attribute], *rest) for category, attribute, *rest in rows]
        return sorted(found, key=lambda each: (-sum(each[2:]), each.category, each.attribute))

    def moments(self) -> dict[str, Moments]:
        """Return for each category the sums over the rows whose text has not changed."""
        rows = self._database.rows(
            """
            select category, count(*), sum(n), sum(x), sum(n * n), sum(x * n), sum(x * x)
            from (select category, count(*) as n, count(*) filter (where is_same) as x
                  from compared
                  where not text_changed and status_a <> 'not_asked' and status_b <> 'not_asked'
                  group by pair, category)
            group by category order by category
            """
        )
        return {self._database.categories.names[category]: Moments(*map(int, sums)) for category, *sums in rows}

    def sample(
        self,
        order: Sequence[tuple[str, str]],
        limit: int,
        seed: int,
        labelled: Iterable[RowKey],
        *,
        text_changed: bool = False,
    ) -> list[Sampled]:
        """Draw differing answers. See `draw_answers`."""
        return draw_answers(self._database, order, limit, seed, labelled, text_changed=text_changed)


def _build(db: JoinDatabase) -> None:
    names = ", ".join(f"'{status}'" for status in STATUSES)
    db.execute(f"create type status as enum ({names})")
    for name in SIDES:
        load_rows(db, name)
    pair_rows(db)
    for name in SIDES:
        load_answers(db, name)
    _compare(db)


def _compare(db: JoinDatabase) -> None:
    run_a, run_b = (db.code_of_run(db.sides[name].run_id) for name in SIDES)
    asked = {name: _asked(db, name) for name in SIDES}
    # A dead-lettered row has no answer; what its run did not ask for has none for another reason.
    db.execute(
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


def _asked(db: JoinDatabase, name: str) -> str:
    """Return a SQL condition: the run asks for an attribute of a category. A run without schemas asks for all."""
    schemas = db.sides[name].schemas
    if schemas is None:
        return "true"
    pairs = [(category, each.name) for category, schema in schemas.items() for each in schema.attributes]
    db.execute(f"create table asked_{name} (category integer, attribute integer)")
    db.insert(
        f"asked_{name}",
        {
            "category": db.categories.encode(pa.chunked_array([[category for category, _ in pairs]], pa.string())),
            "attribute": db.attributes.encode(pa.chunked_array([[attribute for _, attribute in pairs]], pa.string())),
        },
    )
    return f"(p.category, attribute) in (select (category, attribute) from asked_{name})"
