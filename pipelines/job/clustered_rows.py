"""Rows of the catalog in a clustered file: read, checked and sorted by category.

The files never leave the run and are removed when it is finished. A row is identified by (source_file, source_row), as
everywhere. The whole text of a refused row is kept for its dead letter.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hpd_core import Record
from pipelines.catalog.html_text import MarkedUpRecord
from pipelines.catalog.sharding import RowRange, Shard, shard_from_dict
from pipelines.job.context import DeadRow, PreparedRecord
from pipelines.job.run_plan import Plan
from pipelines.store.folders import Folder
from pipelines.store.ledger import CLUSTERS_NAME, named_damage

_FIELD = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("original", pa.string()),  # as it stands in the catalog, where that is HTML
    ]
)

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("category_key", pa.string(), nullable=False),  # what it is sorted by; "" for a row without a schema
        pa.field("file", pa.int32(), nullable=False),  # index into the plan's files
        pa.field("row", pa.int64(), nullable=False),
        pa.field("byte_start", pa.int64(), nullable=False),  # of the line in a JSONL file; 0 for Parquet
        pa.field("byte_stop", pa.int64(), nullable=False),
        pa.field("product_id", pa.string()),
        pa.field("category", pa.string()),
        pa.field("fields", pa.list_(pa.field("element", _FIELD, nullable=False))),  # null for a refused row
        pa.field("input_hash", pa.string()),
        pa.field("copied", pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.field("code", pa.string()),  # why it was refused
        pa.field("message", pa.string()),
        pa.field("row_json", pa.string()),
    ]
)
_ORDER = [(name, "ascending") for name in ("partition", "category_key", "file", "row")]
# Shards are cut along row groups, because one that begins within a row group reads that group's beginning in vain.
_ROWS_PER_GROUP = 1024


@dataclass(frozen=True, slots=True)
class DealtRow:
    """Row with its partition, and the place of its line in its JSONL file."""

    outcome: PreparedRecord | DeadRow
    partition: int
    category_key: str
    byte_start: int
    byte_stop: int


def to_table(rows: Sequence[DealtRow]) -> pa.Table:
    """Return the rows as a table with schema `SCHEMA`."""
    return pa.Table.from_pylist([_to_dict(row) for row in rows], schema=SCHEMA)


def _to_dict(row: DealtRow) -> dict[str, Any]:
    outcome = row.outcome
    place = {
        "partition": row.partition,
        "category_key": row.category_key,
        "file": outcome.file,
        "row": outcome.row,
        "byte_start": row.byte_start,
        "byte_stop": row.byte_stop,
    }
    if isinstance(outcome, DeadRow):
        return place | {
            "product_id": outcome.product_id,
            "category": outcome.category,
            "code": outcome.code,
            "message": outcome.message,
            "row_json": outcome.row_json,
        }
    record = outcome.record
    originals = record.originals if isinstance(record, MarkedUpRecord) else {}
    return place | {
        "product_id": record.id,
        "category": record.category,
        "fields": [
            {"name": name, "text": text, "original": originals.get(name)} for name, text in record.fields.items()
        ],
        "input_hash": outcome.input_hash,
        "copied": list(outcome.copied.items()),
    }


def from_values(values: Mapping[str, Any]) -> PreparedRecord | DeadRow:
    """Return the checked row of a clustered file, as a record or a dead row."""
    file, row, product_id, category = (values[name] for name in ("file", "row", "product_id", "category"))
    if values["fields"] is None:
        return DeadRow(
            file, row, product_id, category, "prepare", values["code"], values["message"], values["row_json"]
        )
    fields = {field["name"]: field["text"] for field in values["fields"]}
    originals = {field["name"]: field["original"] for field in values["fields"] if field["original"] is not None}
    record = Record(product_id, category, fields)
    if originals:
        record = MarkedUpRecord(product_id, category, fields, originals)
    copied = {name: tuple(items) for name, items in values["copied"]}
    return PreparedRecord(file, row, record, values["input_hash"], copied=copied)


def source_piece(values: Mapping[str, Any]) -> RowRange:
    """Return the place of the row in the catalog."""
    return RowRange(values["file"], values["row"], values["row"] + 1, 1, values["byte_start"], values["byte_stop"])


def encode(table: pa.Table) -> bytes:
    """Return the bytes of a clustered file: the rows sorted by partition and category."""
    buffer = io.BytesIO()
    pq.write_table(table.sort_by(_ORDER), buffer, row_group_size=_ROWS_PER_GROUP, compression="zstd")
    return buffer.getvalue()


def segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the number of rows and of uncompressed bytes of each row group of a clustered file."""
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        yield group.num_rows, group.total_byte_size


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clustered catalog.

    Attributes:
        files: names of the clustered files in the run's folder; the shards' pieces point to them.
        shards: shards of the run, which replace the plan's.
        num_categories: number of categories with a schema.
        num_partitions: number of partitions of the rows.
        seconds: duration of the clustering.
    """

    files: Sequence[str]
    shards: Sequence[Shard]
    num_categories: int
    num_partitions: int
    seconds: float

    def describe(self) -> dict[str, Any]:
        """Return the clustering's entry in the run's manifest."""
        return {
            "files": len(self.files),
            "categories": self.num_categories,
            "partitions": self.num_partitions,
            "seconds": self.seconds,
        }

    @classmethod
    def read(cls, output: Folder) -> Clusters | None:
        """Return the clusters of the run in the folder; None if it is not clustered yet."""
        with named_damage(output, CLUSTERS_NAME):
            data: Mapping[str, Any] | None = output.read_json(CLUSTERS_NAME)
            if data is None:
                return None
            return cls(**{**data, "shards": [shard_from_dict(shard) for shard in data["shards"]]})

    def store(self, output: Folder) -> Clusters:
        """Store the clusters, unless another driver was faster; return the stored ones."""
        output.create(CLUSTERS_NAME, json.dumps(asdict(self), ensure_ascii=False).encode())
        return Clusters.read(output) or self


def run_shards(output: Folder, plan: Plan) -> Sequence[Shard] | None:
    """Return the shards that the run decodes and commits; None until its catalog is clustered."""
    if not plan.is_clustered:
        return plan.shards
    clusters = Clusters.read(output)
    return clusters.shards if clusters is not None else None
