"""The tables of a run: one declared Arrow schema each, never inferred.

Complete from the first day: what a later stage fills (normalised values, confidence, price) is nullable
and null until then, so an output folder never needs a migration.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import RunError, UsageError
from pipelines.store.folders import Folder

EVIDENCE = pa.struct(
    [
        pa.field("field", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),  # code points into the original field
        pa.field("end", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("match", pa.string(), nullable=False),  # exact, folded, fuzzy
    ]
)

# What says where a row came from: (source_file, source_row) is its identity, product_id may be doubled.
_SOURCE = [
    pa.field("run_id", pa.string(), nullable=False),
    pa.field("source_file", pa.string(), nullable=False),
    pa.field("source_row", pa.int64(), nullable=False),
]

# What says how a value came about. Equal columns and equal input_hash promise an equal answer (in `products` only where
# nothing was carried over in part: some answers are of an older schema then).
_PROVENANCE = [
    pa.field("model_id", pa.string(), nullable=False),
    pa.field("model_revision", pa.string()),
    pa.field("adapter_revision", pa.string()),
    pa.field("schema_hash", pa.string(), nullable=False),
    pa.field("prompt_hash", pa.string(), nullable=False),
    pa.field("layout", pa.string(), nullable=False),
    pa.field("input_hash", pa.string(), nullable=False),
]

ATTRIBUTES = pa.schema(
    [
        *_SOURCE,
        pa.field("product_id", pa.string(), nullable=False),
        pa.field("category", pa.string(), nullable=False),
        pa.field("attribute", pa.string(), nullable=False),
        pa.field("value_index", pa.int32(), nullable=False),  # 0 unless the attribute is `multiple`
        pa.field("value_raw", pa.string()),  # the value as the model wrote it; null when absent
        pa.field("value_norm", pa.string()),
        pa.field("value_num", pa.float64()),
        pa.field("unit", pa.string()),
        pa.field("status", pa.string(), nullable=False),  # value, absent, truncated, invalid, error
        pa.field("evidence", pa.list_(pa.field("element", EVIDENCE))),
        pa.field("num_tokens", pa.int32(), nullable=False),  # generated for the attribute, all items together
        pa.field("num_dropped", pa.int32(), nullable=False),  # characters after the value that were dropped
        pa.field("logprob_mean", pa.float64()),
        pa.field("logprob_min", pa.float64()),
        pa.field("confidence", pa.float64()),
        *_PROVENANCE,
        pa.field("carried_from", pa.string()),  # the earlier run that decoded it; null if this one did
    ]
)

PRODUCTS = pa.schema(
    [
        *_SOURCE,
        pa.field("product_id", pa.string(), nullable=False),
        pa.field("category", pa.string(), nullable=False),
        # Every attribute of the schema; null unless its status is "value", several items joined by "; ".
        pa.field("values", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("num_value", pa.int32(), nullable=False),
        pa.field("num_absent", pa.int32(), nullable=False),
        pa.field("num_truncated", pa.int32(), nullable=False),
        pa.field("num_invalid", pa.int32(), nullable=False),
        pa.field("num_error", pa.int32(), nullable=False),
        pa.field("error", pa.string()),
        # The engine's time for this product alone, each step's split by tokens; null where nothing was decoded for it.
        pa.field("engine_seconds", pa.float64()),
        *_PROVENANCE,
        pa.field("carried_from", pa.string()),  # the run that `base` named, if all its answers are from there
    ]
)

DEAD_LETTER = pa.schema(
    [
        *_SOURCE,
        pa.field("product_id", pa.string()),
        pa.field("category", pa.string()),
        pa.field("stage", pa.string(), nullable=False),  # prepare, decode
        pa.field("error_code", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("row_json", pa.string()),  # the row as it was read, for a repair and a second run
        pa.field("attempts", pa.int32(), nullable=False),
    ]
)

METRICS = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("shard", pa.int64(), nullable=False),
        pa.field("attempt_id", pa.string(), nullable=False),
        pa.field("retries", pa.int32(), nullable=False),  # earlier attempts at this shard, in every session
        pa.field("num_rows", pa.int64(), nullable=False),
        pa.field("num_products", pa.int64(), nullable=False),
        pa.field("num_dead_letters", pa.int64(), nullable=False),
        pa.field("num_carried", pa.int64()),  # products all of whose answers are from an earlier run
        pa.field("num_values", pa.int64(), nullable=False),
        pa.field("estimated_tokens", pa.int64(), nullable=False),
        pa.field("prefix_tokens_computed", pa.int64(), nullable=False),
        pa.field("prefix_tokens_reused", pa.int64(), nullable=False),
        pa.field("document_tokens", pa.int64(), nullable=False),
        pa.field("key_tokens", pa.int64(), nullable=False),
        pa.field("value_tokens", pa.int64(), nullable=False),
        pa.field("draft_tokens", pa.int64()),  # forwarded on trial (engine.max_draft_tokens_per_step)
        pa.field("rejected_tokens", pa.int64()),  # of them, those that no value went on with
        pa.field("num_steps", pa.int64(), nullable=False),
        pa.field("started_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("finished_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("prepare_seconds", pa.float64(), nullable=False),
        pa.field("busy_seconds", pa.float64(), nullable=False),  # engine time, shared out by tokens forwarded
        pa.field("prefix_seconds", pa.float64()),  # of busy_seconds: prefixes, which no single product has to pay
        pa.field("retry_seconds", pa.float64()),  # tries that failed, start to end; others may have run beside them
        pa.field("load_seconds", pa.float64(), nullable=False),  # model load, on the first shard of an actor only
        pa.field("wall_seconds", pa.float64(), nullable=False),  # in the decode stage, waiting included
        pa.field("idle_seconds", pa.float64()),  # waiting for its turn in the engine
        pa.field("finish_seconds", pa.float64(), nullable=False),
        pa.field("bytes_read", pa.int64()),  # of the input, as stored
        pa.field("bytes_written", pa.int64()),  # of the other three tables, as stored
        pa.field("device", pa.string(), nullable=False),
        pa.field("gpu_type", pa.string()),
        pa.field("node_id", pa.string()),
        pa.field("actor_id", pa.string()),
        # An engine's life from its start to the end of this shard, or from the end of the shard before.
        pa.field("billed_seconds", pa.float64()),
        pa.field("instance_type", pa.string()),
        pa.field("market", pa.string()),  # on-demand, spot
        pa.field("node_share", pa.float64()),  # the engine's part of its machine
        pa.field("price_per_hour", pa.float64()),  # of the engine: its share of the instance; null where not known
        pa.field("price_source", pa.string()),
        pa.field("cost_useful", pa.float64()),  # busy_seconds, priced
        pa.field("cost_billed", pa.float64()),  # billed_seconds, priced
        pa.field("currency", pa.string()),
    ]
)

TABLES: Mapping[str, pa.Schema] = {
    "attributes": ATTRIBUTES,
    "products": PRODUCTS,
    "dead_letter": DEAD_LETTER,
    "metrics": METRICS,
}


@contextmanager
def open_part(folder: Folder, name: str, kind: type[RunError] | type[UsageError] = RunError) -> Iterator[Any]:
    """A published part of a run as a file. Raises a `kind` that names it if it cannot be opened, or read in the block.

    Args:
        kind: `UsageError` for who was asked to look at a finished run: no rerun would continue that.
    """
    try:
        with folder.open(name) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise kind(f"cannot read {folder.describe(name)}: {error}") from error


def read_part(folder: Folder, name: str, columns: list[str] | None = None) -> pa.Table:
    """A published part of a run. Raises `RunError` if it cannot be read."""
    with open_part(folder, name) as file:
        return pq.read_table(file, columns=columns)


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """A shard's part of a table as it is stored: Parquet."""

    data: bytes
    num_rows: int


def encode(name: str, rows: Iterable[Mapping[str, Any]]) -> EncodedTable:
    """`rows` as a stored part of the table `name`. Raises as `to_table`."""
    table = to_table(name, rows)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return EncodedTable(buffer.getvalue(), table.num_rows)


def to_table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """`rows` as the table `name`. Raises `ValueError` on a column the schema does not declare or a null that
    it does not allow: pyarrow itself would drop the one and store the other."""
    schema = TABLES[name]
    rows = list(rows)
    if unknown := set().union(*rows) - set(schema.names):
        raise ValueError(f"table {name!r} has no column {sorted(unknown)}")
    table = pa.Table.from_pylist(rows, schema=schema)
    for column in schema:
        if not column.nullable and table.column(column.name).null_count:
            raise ValueError(f"table {name!r}, column {column.name!r}: null is not allowed")
    return table
