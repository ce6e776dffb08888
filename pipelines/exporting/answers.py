"""A run's answers in a DuckDB of their own, each accepted or with the reason why not.

People's answers (`hpd review`) are layered over the model's, and always accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from hpd_core import Attribute, CategorySchema
from hpd_core.text.near_names import quoted
from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.store.database import temporary_database
from pipelines.store.no_run import schemas_place
from pipelines.store.tables import TABLES

_KEYS = ("source_file", "source_row", "product_id", "category")
_COLUMNS = (
    *_KEYS,
    *("attribute", "source", "status", "norm_status", "num_tokens", "logprob_mean", "probability", "confidence"),
    *("decision", "value_raw", "value_norm", "value_num", "value_min", "value_max", "unit", "value_id"),
)
_BATCH = 8192


class ExportedItem(NamedTuple):
    """Accepted value: its normalised form or, without one, the model's text.

    Attributes:
        worth: its confidence, or else its probability; None if neither is known, or a person gave it.
    """

    text: str
    num: float | None
    unit: str | None
    id: str | None
    min: float | None = None
    max: float | None = None
    worth: float | None = None


class ExportedProduct(NamedTuple):
    """Product with its accepted values by attribute; those of a list in their order."""

    source_file: str
    source_row: int
    product_id: str
    category: str
    values: Mapping[str, list[ExportedItem]]
    input_hash: str | None = None


NOT_NORMALISED = {
    "ambiguous": "ambiguous: the text may mean several values",
    "conflict": "conflict: the text has another unit, or another kind of value, than the attribute",
    "no_rule": "no normalised form",
}
LOW_LOGPROB = "below --min-logprob"
LOW_CONFIDENCE = "below --min-confidence"
NO_CONFIDENCE = "no confidence is known"
LEAST_PROBABILITY = 0.8
UNCHECKED = f"unchecked: its probability is below {LEAST_PROBABILITY:g} (--all takes it)"
FOR_REVIEW = "for review: below what accept.precision asks for"
PART = "another value of its list is left out"
NOT_STATED = "absent"
"""Reason of an attribute that the text does not state: nothing is lost by leaving it out."""


@dataclass(frozen=True, slots=True)
class ExportAcceptance:
    """Rule that accepts values with a normalised form, which attributes that take any text do not need.

    Answers of a run without any normalised values (`norm_status` is null) are taken unchanged. If the run has decided
    which values may be taken (`decision`), the others are for review and left out.

    Attributes:
        takes_raw: whether values without a normalised form are taken, too, unchanged.
        min_logprob: least mean log probability of a token.
        min_confidence: least confidence; answers without one are left out.
        takes_review: whether values that are for review, or unchecked, are taken, too.
        has_decided: whether the run has decided, so that a value without a decision is for review. Otherwise a value
            needs a probability of `LEAST_PROBABILITY`, unless another limit is given: its confidence or, without a
            calibration, the model's probability.
    """

    takes_raw: bool = False
    min_logprob: float | None = None
    min_confidence: float | None = None
    takes_review: bool = False
    has_decided: bool = False

    def sql(self) -> str:
        """Return an expression for the reason of leaving a row out; null if it is taken. `plain` has attributes of any
        text."""
        tests = [("source = 'review' and status = 'value'", "null"), ("status <> 'value'", "status")]
        if not self.takes_raw:
            for status, why in NOT_NORMALISED.items():
                more = " and (category, attribute) not in (from plain)" if status == "no_rule" else ""
                tests.append((f"norm_status = '{status}'{more}", f"'{why}'"))
        tests.append(("source = 'column'", "null"))  # the shop's own, which has no probability
        if not self.takes_review:
            tests.append((f"coalesce(decision = 'review', {self.has_decided})", f"'{FOR_REVIEW}'"))
            if not self.has_decided and self.min_logprob is None and self.min_confidence is None:
                said = "coalesce(confidence, probability, exp(num_tokens * logprob_mean))"  # the last of an older run
                tests.append((f"{said} < {LEAST_PROBABILITY}", f"'{UNCHECKED}'"))
        if self.min_logprob is not None:
            tests.append((f"coalesce(logprob_mean < '{self.min_logprob}'::double, true)", f"'{LOW_LOGPROB}'"))
        if self.min_confidence is not None:
            tests.append(("confidence is null or isnan(confidence)", f"'{NO_CONFIDENCE}'"))
            tests.append((f"confidence < '{self.min_confidence}'::double", f"'{LOW_CONFIDENCE}'"))
        return f"case {' '.join(f'when {test} then {why}' for test, why in tests)} end"


def is_plain(attribute: Attribute) -> bool:
    """Return whether any text is a valid value, even without a normalised form."""
    return attribute.type == "string" and attribute.unit is None


@dataclass(slots=True)
class LeftOutAnswers:
    """Counts of answers by (attribute, reason), with the first product and its answer as an example of each."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], tuple[str, str | None]] = field(default_factory=dict)

    def add(self, attribute: str, reason: str, product_id: str, value: str | None, count: int = 1) -> None:
        """Count an answer."""
        self.counts[attribute, reason] += count
        self.examples.setdefault((attribute, reason), (product_id, value))

    @property
    def by_reason(self) -> Mapping[str, int]:
        """Number of answers by reason, the most frequent first."""
        total: Counter[str] = Counter()
        for (_, reason), count in self.counts.items():
            total[reason] += count
        return dict(total.most_common())

    def to_list(self) -> list[dict[str, Any]]:
        """Return a row for each attribute and reason, the most frequent first, for JSON output."""
        return [
            {"attribute": attribute, "reason": reason, "count": count}
            | dict(zip(("product_id", "value"), self.examples[attribute, reason], strict=True))
            for (attribute, reason), count in self.counts.most_common()
        ]


class Answers:
    """All products of a run with their accepted answers.

    Attributes:
        num_products, num_values: numbers of products, and of accepted answers.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, run: Run, accepted: ExportAcceptance, left_out: LeftOutAnswers
    ) -> None:
        """Read the run's tables. Raises `UsageError` if they cannot be read, or are not the run's."""
        self._database, self._run = database, run
        schemas = asked_schemas(run)
        plain = [(name, each.name) for name, schema in schemas.items() for each in schema.attributes if is_plain(each)]
        self._create(
            "plain",
            pa.table(
                dict(zip(("category", "attribute"), zip(*plain, strict=True) if plain else ([], []), strict=True))
            ),
        )
        files = [file.name for file in run.plan.files]
        self._create("files", pa.table({"source_file": files, "place": range(len(files))}))
        self._load("products", (*_KEYS, "input_hash"), "null")
        self._load("attributes", _COLUMNS, accepted.sql())
        self._check(schemas)
        self._left_out = left_out

    def leave_out_parts(self) -> None:
        """Leave out values beside a left-out value of their list: a part of it would be another answer."""
        self._database.execute(
            f"update attributes set reason = '{PART}' where reason is null and (source_file, source_row, attribute) in "
            "(select source_file, source_row, attribute from attributes where reason is not null)"
        )

    def count(self) -> tuple[int, int]:
        """Count those that are left out. Return the numbers of products and of accepted answers."""
        found = self._database.execute(
            "select attribute, reason, first(product_id order by rowid), first(value_raw order by rowid), count(*) "
            "from attributes where reason is not null group by all order by min(rowid)"
        )
        for row in found.fetchall():
            self._left_out.add(*row)
        (counts,) = self._database.execute(
            "select (select count(*) from products), "
            "(select count(distinct (source_file, source_row, attribute)) from attributes where reason is null)"
        ).fetchall()
        return counts

    def num_repeated_ids(self) -> int:
        """Return the number of products whose id an earlier one has."""
        ((count,),) = self._database.execute(
            "select count(*) - count(distinct product_id) from products where product_id is not null"
        ).fetchall()
        return int(count)

    def attributes(self, source_file: str) -> set[str]:
        """Return the names of the attributes that have an answer in a file."""
        found = self._database.execute(
            "select distinct attribute from attributes where reason is null and source_file = ?", [source_file]
        )
        return {name for (name,) in found.fetchall()}

    def products(self, source_file: str | None = None) -> Iterator[ExportedProduct]:
        """Yield the products of a file, or of all files, in the catalog's order."""
        found = self._database.cursor().execute(
            "select p.* exclude (reason), a.attribute, coalesce(a.value_norm, a.value_raw), value_num, unit, value_id, "
            "value_min, value_max, if(a.source = 'review', null, coalesce(confidence, probability)) from products p "
            "left join files using (source_file) "
            "left join attributes a on (p.source_file, p.source_row) = (a.source_file, a.source_row) "
            "and a.reason is null where p.source_file = coalesce(?, p.source_file) "
            "order by place, p.source_row, a.rowid",
            [source_file],
        )
        rows = (row for batch in iter(lambda: found.fetchmany(_BATCH), []) for row in batch)
        for (file, number, product_id, category, input_hash), group in groupby(rows, itemgetter(0, 1, 2, 3, 4)):
            values: dict[str, list[ExportedItem]] = {}
            for row in group:
                if row[5] is not None:
                    values.setdefault(row[5], []).append(ExportedItem(*row[6:]))
            yield ExportedProduct(file, number, product_id, category, values, input_hash)

    def _create(self, name: str, table: pa.Table) -> None:
        self._database.register("batch", table)
        self._database.execute(f"create table {name} as from batch")

    def _load(self, table: str, columns: Sequence[str], reason: str) -> None:
        declared = pa.schema([TABLES[table].field(name) for name in columns])
        self._create(table, declared.empty_table().append_column("reason", pa.array([], pa.string())))
        for part in self._run.reviewed.read(table, columns):
            self._database.register("batch", part)
            self._database.execute(f"insert into {table} select *, {reason} from batch")

    def _check(self, schemas: Mapping[str, CategorySchema]) -> None:
        """Raise `UsageError` for answers of a category without a schema, which no file has a place for, or without a
        product."""
        named = self._database.execute("select distinct category from attributes order by 1").fetchall()
        if unasked := [name for (name,) in named if name not in schemas]:
            raise UsageError(
                f"{schemas_place(self._run.folder)} has no category {quoted(unasked[0])}, of which the run has "
                "answers: it is not the run's, or it was edited. Restore the file from a copy of the run, or extract "
                "anew into another output folder"
            )
        if self._database.execute("from attributes anti join products using (source_file, source_row)").fetchone():
            raise UsageError(f"{self._run.uri}: the parts of attributes and products do not belong together")


def asked_schemas(run: Run) -> Mapping[str, CategorySchema]:
    """Return the schemas that the run asked for. Raises `UsageError` for a run that did not store them."""
    if run.schemas is None:
        raise UsageError(f"{run.uri} does not say what it asked for (it has no _schemas.json); run it again")
    return run.schemas


@contextmanager
def opened_answers(run: Run, accepted: ExportAcceptance, left_out: LeftOutAnswers) -> Iterator[Answers]:
    """Open a run's answers in a temporary folder, for the block. Raises `UsageError` as `Answers`."""
    with temporary_database() as database:
        yield Answers(database, run, accepted, left_out)
