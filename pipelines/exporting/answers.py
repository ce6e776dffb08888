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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import CategorySchema
from hpd_core.text.near_names import quoted
from pipelines.errors import UsageError
from pipelines.exporting import acceptance
from pipelines.exporting.acceptance import ExportAcceptance, LeftOutAnswers
from pipelines.exporting.wide_columns import PLACE
from pipelines.runs.run import Run
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
    columns = list(dict.fromkeys([*_KEYS, *acceptance.COLUMNS, *_VALUES, *_OF_REVIEWS]))
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
    return pc.if_else(pc.and_(pc.is_null(reasons), pa.array(is_partly_out)), acceptance.PART, reasons)


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
