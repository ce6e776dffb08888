"""Spool of accepted answers on disk, read back in the order of a file's rows.

A run's shards need not be in the catalog's order: it may have been clustered by category. DuckDB sorts; above
`MEMORY_LIMIT` it spills to disk.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.exporting.answers import ExportedItem, ExportedProduct

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
