"""Accepted answers of a run with their products, read a shard at a time.

People's answers (`hpd review`) are layered over the model's, and always accepted.

Spool of accepted answers on disk, read back in the order of a file's rows.

A run's shards need not be in the catalog's order: it may have been clustered by category. DuckDB sorts; above
`MEMORY_LIMIT` it spills to disk.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import Attribute, CategorySchema
from hpd_core.text.near_names import quoted
from pipelines.errors import UsageError
from pipelines.exporting.wide_columns import PLACE
from pipelines.job.run import Run
from pipelines.store.no_run import schemas_place

_VALUES = ("value_raw", "value_norm", "value_num", "value_min", "value_max", "unit", "value_id")
_KEYS = ("source_file", "source_row", "product_id")
_OF_REVIEWS = ("source", "num_tokens")


@dataclass(frozen=True, slots=True)
class ShardAnswers:
    """Products of a shard, in the order of its rows, with their accepted answers.

    Attributes:
        answers: accepted rows of the attributes table.
        owner: int64, for each of them, the index of its product in `products`.
    """

    products: pa.Table
    answers: pa.Table
    owner: npt.NDArray[np.int64]


class ExportedItem(NamedTuple):
    """Accepted value: its normalised form or, without one, the model's text."""

    text: str
    num: float | None
    unit: str | None
    id: str | None


class ExportedProduct(NamedTuple):
    """Product with its accepted values by attribute; those of a list in their order."""

    source_file: str
    source_row: int
    product_id: str
    category: str
    values: Mapping[str, list[ExportedItem]]


def asked_schemas(side: Run) -> Mapping[str, CategorySchema]:
    """Return the schemas that the run asked for. Raises `UsageError` for a run that did not store them."""
    if side.schemas is None:
        raise UsageError(f"{side.uri} does not say what it asked for (it has no _schemas.json); run it again")
    return side.schemas


def read_shards(
    side: Run, accepted: ExportAcceptance, left_out: LeftOutAnswers, *, needs_whole_lists: bool = False
) -> Iterator[ShardAnswers]:
    """Yield the shards with their accepted answers; count the others in `left_out`.

    Args:
        needs_whole_lists: whether a list with a value that is not accepted is left out as a whole.

    Raises `UsageError` if something cannot be read.
    """
    columns = list(dict.fromkeys([*_KEYS, *COLUMNS, *_VALUES, *_OF_REVIEWS]))
    schemas = asked_schemas(side)
    products = side.parts.read("products", (*PLACE, "input_hash"))
    for part in side.parts.read("attributes", columns):
        here = next(products, None)
        if here is None or here.num_rows == 0:
            raise UsageError(f"{side.uri}: the parts of attributes and products do not belong together")
        _refuse_unasked(part, schemas, side)
        part = side.reviews.apply(part)
        owner = _owners(here, part, side.uri)
        reasons = pc.if_else(is_given(part), None, accepted.reasons(part))
        if needs_whole_lists:
            reasons = _of_whole_lists(reasons, owner, part["attribute"])
        taken = pc.is_null(reasons)
        left_out.add_rows(part.append_column("reason", reasons).filter(pc.invert(taken)))
        yield ShardAnswers(here, part.filter(taken), owner[taken.to_numpy()])


def _refuse_unasked(answers: pa.Table, schemas: Mapping[str, CategorySchema], side: Run) -> None:
    """Raise `UsageError` for answers of a category without a schema: no file would have a place for them."""
    unasked = sorted(set(pc.unique(answers["category"]).to_pylist()) - schemas.keys())
    if unasked:
        raise UsageError(
            f"{schemas_place(side.folder)} has no category {quoted(unasked[0])}, of which the run has answers: it "
            "is not the run's, or it was edited. Restore the file from a copy of the run, or extract anew into another "
            "output folder"
        )


def is_given(answers: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the rows whose value a person gave."""
    return pc.and_(pc.equal(pc.fill_null(answers["source"], "model"), "review"), pc.equal(answers["status"], "value"))


def _of_whole_lists(
    reasons: pa.ChunkedArray, owner: npt.NDArray[np.int64], attributes: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Return the reasons, with one for values beside a left-out value: a part of a list is another answer."""
    codes = attributes.combine_chunks().dictionary_encode()
    answer = owner * len(codes.dictionary) + codes.indices.to_numpy()
    is_partly_out = np.isin(answer, answer[pc.is_valid(reasons).to_numpy()])
    return pc.if_else(pc.and_(pc.is_null(reasons), pa.array(is_partly_out)), PART, reasons)


def _owners(products: pa.Table, answers: pa.Table, uri: str) -> npt.NDArray[np.int64]:
    """Return for each row of the attributes table the index of its product: rows are grouped, in the same order."""
    row = answers["source_row"].to_numpy()
    file = answers["source_file"].combine_chunks().dictionary_encode().indices.to_numpy()
    begins = np.ones(len(row), dtype=bool)
    begins[1:] = (row[1:] != row[:-1]) | (file[1:] != file[:-1])
    heads = answers.select(["source_file", "source_row"]).filter(pa.array(begins))
    if heads.to_pydict() != products.select(["source_file", "source_row"]).to_pydict():
        raise UsageError(f"{uri}: the parts of attributes and products do not belong together")
    return np.cumsum(begins) - 1


def products_of(shards: Iterable[ShardAnswers]) -> Iterator[ExportedProduct]:
    """Yield all products one by one, in the order of the shards."""
    for shard in shards:
        values: list[dict[str, list[ExportedItem]]] = [{} for _ in range(shard.products.num_rows)]
        answers = shard.answers
        texts = pc.coalesce(answers["value_norm"], answers["value_raw"]).to_pylist()
        rest = [answers[name].to_pylist() for name in ("attribute", "value_num", "unit", "value_id")]
        for owner, text, attribute, num, unit, id_ in zip(shard.owner.tolist(), texts, *rest, strict=True):
            values[owner].setdefault(attribute, []).append(ExportedItem(text, num, unit, id_))
        places = (shard.products[name].to_pylist() for name in ("source_file", "source_row", "product_id", "category"))
        yield from map(ExportedProduct, *places, values)


MEMORY_LIMIT = "1GB"  # of DuckDB
_MAX_THREADS = 4
_BATCH = 8192

_SCHEMA = pa.schema(
    [
        ("source_file", pa.string()),
        ("source_row", pa.int64()),
        ("product_id", pa.string()),
        ("category", pa.string()),
        ("answers", pa.string()),
    ]
)


class Spool:
    """Products with their answers, by file.

    Attributes:
        attributes: names of the attributes that have an answer, by file.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self.attributes: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, products: Iterable[ExportedProduct]) -> None:
        """Add products, in any order."""
        products = iter(products)
        while batch := list(islice(products, _BATCH)):
            for product in batch:
                self.attributes[product.source_file].update(product.values)
            rows = [(*product[:4], json.dumps(product.values, ensure_ascii=False)) for product in batch]
            columns = zip(zip(*rows, strict=True), _SCHEMA, strict=True)
            table = pa.table([pa.array(column, field.type) for column, field in columns], schema=_SCHEMA)
            self._database.register("batch", table)
            self._database.execute("insert into products select * from batch")
            self._database.unregister("batch")

    def products(self, source_file: str) -> Iterator[ExportedProduct]:
        """Yield the products of a file, by row."""
        found = self._database.cursor().execute(
            "select * from products where source_file = ? order by source_row", [source_file]
        )
        while rows := found.fetchmany(_BATCH):
            for file, row, product_id, category, answers in rows:
                values = {name: [ExportedItem(*item) for item in items] for name, items in json.loads(answers).items()}
                yield ExportedProduct(file, row, product_id, category, values)


@contextmanager
def open_spool() -> Iterator[Spool]:
    """Open an empty spool in a temporary folder, for the block."""
    with tempfile.TemporaryDirectory(prefix="hpd-export-") as folder:
        options: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(Path(folder, "spilled")),
            "threads": min(_MAX_THREADS, os.cpu_count() or 1),
        }
        with duckdb.connect(str(Path(folder, "products.duckdb")), config=options) as database:
            database.execute(
                "create table products (source_file varchar, source_row bigint, product_id varchar, category varchar, "
                "answers varchar)"
            )
            yield Spool(database)


COLUMNS = (
    "category",
    "attribute",
    "status",
    "norm_status",
    "num_tokens",
    "logprob_mean",
    "probability",
    "confidence",
    "decision",
)
"""Columns of the attributes table that `ExportAcceptance.reasons` reads."""

NO_VALUE = ("absent", "truncated", "invalid", "error")
"""Statuses of answers without a value; in an export, reasons for an empty cell."""

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

_BETWEEN = "\x1f"


def is_plain(attribute: Attribute) -> bool:
    """Return whether any text is a valid value, even without a normalised form."""
    return attribute.type == "string" and attribute.unit is None


@dataclass(frozen=True)
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

    schemas: Mapping[str, CategorySchema]
    takes_raw: bool = False
    min_logprob: float | None = None
    min_confidence: float | None = None
    takes_review: bool = False
    has_decided: bool = False
    _plain: pa.Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain", pa.array(_plain_pairs(self.schemas.values()), pa.string()))

    def reasons(self, answers: pa.Table) -> pa.ChunkedArray:
        """Return for each row of the attributes table the reason for leaving it out; null if it is taken."""
        reason = pa.nulls(answers.num_rows, pa.string())
        for why, holds in reversed([*self._statuses(answers), *self._thresholds(answers)]):
            reason = pc.if_else(holds, why, reason)
        return reason

    def _statuses(self, answers: pa.Table) -> Iterable[tuple[str, pa.ChunkedArray]]:
        yield from ((status, pc.equal(answers["status"], status)) for status in NO_VALUE)
        if self.takes_raw:
            return
        norm = pc.fill_null(answers["norm_status"], "ok")
        pair = pc.binary_join_element_wise(answers["category"], answers["attribute"], _BETWEEN)
        for status, why in NOT_NORMALISED.items():
            holds = pc.equal(norm, status)
            if status == "no_rule":
                holds = pc.and_(holds, pc.invert(pc.is_in(pair, self._plain)))
            yield why, holds

    def _thresholds(self, answers: pa.Table) -> Iterable[tuple[str, pa.ChunkedArray]]:
        if not self.takes_review:
            yield FOR_REVIEW, pc.fill_null(pc.equal(answers["decision"], "review"), self.has_decided)
            if not self.has_decided and self.min_logprob is None and self.min_confidence is None:
                said = pc.exp(pc.multiply(answers["num_tokens"], answers["logprob_mean"]))  # of an older run
                probability = pc.coalesce(answers["confidence"], answers["probability"], said)
                yield UNCHECKED, pc.fill_null(pc.less(probability, LEAST_PROBABILITY), False)
        if self.min_logprob is not None:
            yield LOW_LOGPROB, pc.fill_null(pc.less(answers["logprob_mean"], self.min_logprob), True)
        if self.min_confidence is not None:
            yield NO_CONFIDENCE, pc.is_null(answers["confidence"], nan_is_null=True)
            yield LOW_CONFIDENCE, pc.fill_null(pc.less(answers["confidence"], self.min_confidence), False)


def _plain_pairs(schemas: Iterable[CategorySchema]) -> list[str]:
    return [
        f"{schema.category}{_BETWEEN}{attribute.name}"
        for schema in schemas
        for attribute in schema.attributes
        if is_plain(attribute)
    ]


NOT_STATED = "absent"
"""Reason of an attribute that the text does not state: nothing is lost by leaving it out."""


@dataclass(slots=True)
class LeftOutAnswers:
    """Counts of answers by (attribute, reason), with the first product and its answer as an example of each."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], tuple[str, str | None]] = field(default_factory=dict)

    def add(self, attribute: str, reason: str, product_id: str, value: str | None) -> None:
        """Count one answer."""
        self.counts[attribute, reason] += 1
        self.examples.setdefault((attribute, reason), (product_id, value))

    def add_rows(self, answers: pa.Table) -> None:
        """Count rows of the attributes table with a column `reason`, which must have no nulls."""
        if not answers.num_rows:
            return
        grouped = answers.select(["attribute", "reason", "product_id", "value_raw"]).group_by(
            ["attribute", "reason"], use_threads=False
        )
        found = grouped.aggregate([("product_id", "count"), ("product_id", "first"), ("value_raw", "first")])
        for row in found.to_pylist():
            key = row["attribute"], row["reason"]
            self.counts[key] += row["product_id_count"]
            self.examples.setdefault(key, (row["product_id_first"], row["value_raw_first"]))

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
