"""Clustering pass on Ray: count the categories, assign the rows to partitions, store the clustered files.

    shards of the plan --> count --------------------------------> rows of each category --> Placement
    shards of the plan --> deal (read, check) --> hash shuffle, on disk, by partition --> store --> clustered files

Neither the driver nor a worker ever holds more than a few shards or partitions of rows; the rest of the shuffle lies on
the disks of the nodes. A killed pass is repeated: nothing has been decoded yet. A count and a sum over hashes of the
rows' identities check that every row arrived exactly once.

Partition of each row, computed only from the number of rows of each category.

categories   |-- Boots --|Caps|---------- Shirts ----------|Ties|
partitions   |    0     |     1     |     2     |     3     | 4 |

Every category is an interval of one line, which is cut into partitions of equal length. A hash of a row's identity (the
salt of its key) decides its place in its category's interval. So a category larger than a partition is spread over
several, and no partition becomes much larger than the others. Categories stand on the line in the order of their
hashes, so that the rows decoded first are not an alphabetical part of the catalog.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data
from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    RayActorError,
    WorkerCrashedError,
)
from rich.console import Console

from pipelines.catalog.input_files import FileSegment, SourceFile
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import known_category
from pipelines.catalog.sharding import BYTES_PER_TOKEN, RowRange, Shard, plan_shards, tokens_per_row
from pipelines.console.progress import about
from pipelines.errors import RunError, causes
from pipelines.job.clustered_rows import Clusters, DealtRow, encode, segments, to_table
from pipelines.job.context import MAX_TASK_RETRIES, DeadRow, JobContext, unpack
from pipelines.job.preflight import PlannedJob
from pipelines.job.prepare_stage import read_catalog, read_originals
from pipelines.job.ray_stages import begin, deprecated_options_allowed, settle, shard_dataset, told, unwrap
from pipelines.store.ledger import CLUSTERED_FOLDER

logger = logging.getLogger(__name__)

# Uncompressed input that a map task of the shuffle holds.
_SHUFFLE_INPUT_BYTES = 128 * 2**20
_SUM_MODULUS = 2**64
_LOST = (RayActorError, ObjectLostError, WorkerCrashedError, NodeDiedError, ActorUnschedulableError)


@dataclass(slots=True)
class Tally:
    """Number of rows, and a sum over their identities that does not depend on their order."""

    rows: int = 0
    identities: int = 0

    def add(self, rows: int, identities: int) -> None:
        """Add `rows` rows with the sum `identities`."""
        self.rows += rows
        self.identities = (self.identities + identities) % _SUM_MODULUS


def identity_sum(rows: Iterable[tuple[int, int]]) -> int:
    """Return the sum of hashes of the rows `(file, row)`, modulo 2**64: a lost, doubled or confused row changes it."""
    hashes = (hashlib.blake2b(f"{file}:{row}".encode(), digest_size=8).digest() for file, row in rows)
    return sum(int.from_bytes(each) for each in hashes) % _SUM_MODULUS


def cluster_catalog(job: PlannedJob, context: JobContext, console: Console) -> Clusters:
    """Cluster the job's catalog by category and store the result. Needs a running Ray. Raises `RunError`."""
    started = time.monotonic()
    plan, shards = job.plan, list(job.plan.shards)
    console.print(f"Clustering {plan.num_rows:,} rows by category: counting.", highlight=False)
    counts, before = _count(shards, context)
    if before.rows != plan.num_rows:
        raise RunError(
            f"the input has changed during the run: {plan.num_rows:,} rows were planned, {before.rows:,} read"
        )
    row_tokens = tokens_per_row(job.schemas)
    num_bytes = BYTES_PER_TOKEN * max(0, plan.estimated_tokens - row_tokens * plan.num_rows)
    placement = Placement.of(counts, rows_per_partition(before.rows, num_bytes))
    num_categories = len(counts.keys() & job.schemas.keys())
    console.print(
        f"Clustering {plan.num_rows:,} rows by category: dealing {num_categories:,} categories to "
        f"{placement.num_partitions:,} partitions.",
        highlight=False,
    )
    files, after = _deal(shards, context, placement)
    if after != before:
        raise RunError(
            f"clustering lost, doubled or mixed up rows: {before.rows:,} were read, {after.rows:,} arrived. Start the "
            "job again; if that does not help, begin in another output folder with shards.cluster_by_category: false"
        )
    clusters = Clusters(
        files=[file.name for file in files],
        shards=plan_shards(files, job.config.shards, row_tokens, job.config.actors.max),
        num_categories=num_categories,
        num_partitions=placement.num_partitions,
        seconds=time.monotonic() - started,
    ).store(job.output)
    console.print(
        f"Clustered by category in {clusters.seconds:,.0f} s: {len(clusters.shards):,} shards.", highlight=False
    )
    return clusters


def _task(context: JobContext) -> dict[str, Any]:
    return {
        "batch_format": "pyarrow",
        "num_cpus": 0.5,
        "max_retries": MAX_TASK_RETRIES,
    }


def _count(shards: Sequence[Shard], context: JobContext) -> tuple[Counter[str], Tally]:
    """Return the number of rows by category ("" for rows refused for their category), and the tally of all rows."""
    dataset = shard_dataset(shards)
    with deprecated_options_allowed():
        counted = dataset.map_batches(count_categories, batch_size=1, fn_kwargs={"job": context}, **_task(context))
    counts: Counter[str] = Counter()
    tally = Tally()
    for row in counted.iter_rows():
        counts.update(json.loads(row["counts"]))
        tally.add(row["rows"], int(row["identities"]))
    return counts, tally


@told
def count_categories(batch: pa.Table, job: JobContext) -> pa.Table:
    """Count a shard's rows by category. Only that column is read from a Parquet file."""
    begin(job)
    settle("cluster")
    config = job.config.input
    counts: Counter[str] = Counter()
    tally = Tally()
    for piece in _shard(batch).pieces:
        source, columns = job.files[piece.file], config.category.columns
        numbers = []
        for row in read_piece(source.uri, source.format, piece, columns, anonymous=config.anonymous):
            counts[category_key(row.values, job)] += 1
            numbers.append((piece.file, row.number))
        tally.add(len(numbers), identity_sum(numbers))
    return pa.table({"counts": [json.dumps(counts)], "rows": [tally.rows], "identities": [str(tally.identities)]})


def category_key(row: Mapping[str, Any] | None, job: JobContext) -> str:
    """Return the key by which a row is clustered: its category, or "" if there is no schema for it."""
    category = None if row is None else known_category(row, job.config.input, job.schemas)
    return category if isinstance(category, str) and category in job.schemas else ""


def _deal(shards: Sequence[Shard], context: JobContext, placement: Placement) -> tuple[list[SourceFile], Tally]:
    """Return the clustered files in the order of their partitions, and the tally of their rows."""
    settings = ray.data.DataContext.get_current()
    before = settings.use_disk_based_hash_shuffle, settings.shuffle_input_batch_bytes
    settings.use_disk_based_hash_shuffle, settings.shuffle_input_batch_bytes = True, _SHUFFLE_INPUT_BYTES
    try:
        dataset = shard_dataset(shards)  # not before: it takes the settings of now along
        task, arguments = _task(context), {"job": context, "placement": placement}
        with deprecated_options_allowed():
            dealt = dataset.map_batches(deal, batch_size=1, fn_kwargs=arguments, **task)
            partitions = dealt.repartition(placement.num_partitions, keys=["partition"])
            kept_files = partitions.map_batches(store, batch_size=None, fn_kwargs={"job": context}, **task)
        stored = list(kept_files.iter_rows())
    finally:
        settings.use_disk_based_hash_shuffle, settings.shuffle_input_batch_bytes = before
    tally = Tally()
    for row in stored:
        tally.add(row["rows"], int(row["identities"]))
    stored.sort(key=lambda row: (row["partition"], row["name"]))
    return [
        SourceFile(
            row["name"], "parquet", row["size"], "", [FileSegment(*each) for each in json.loads(row["segments"])]
        )
        for row in stored
    ], tally


@told
def deal(batch: pa.Table, job: JobContext, placement: Placement) -> pa.Table:
    """Read and check a shard's rows, and return each with its partition."""
    begin(job)
    settle("cluster")
    shard = _shard(batch)
    rows = [row for piece in shard.pieces for row in _dealt_rows(piece, job, placement)]
    logger.info("dealt", extra=about(shard.id, records=len(rows)))
    return to_table(rows)


def _dealt_rows(piece: RowRange, job: JobContext, placement: Placement) -> Iterator[DealtRow]:
    read = list(read_catalog(piece, job))
    # Kept for the dead letters: later they would have to be looked for all over the catalog.
    originals = read_originals(piece, [outcome for _, outcome in read if isinstance(outcome, DeadRow)], job)
    for row, outcome in read:
        key = category_key(row.values, job)
        partition = placement.partition(key, piece.file, row.number)
        if isinstance(outcome, DeadRow):
            outcome = replace(outcome, row_json=originals.get(row.number))
        yield DealtRow(outcome, partition, key, row.byte_start, row.byte_stop)


@told
def store(batch: pa.Table, job: JobContext) -> pa.Table:
    """Write a block of the shuffle as a clustered file: a few whole partitions, or a part of one."""
    begin(job)
    if batch.num_rows == 0:
        return _STORED.empty_table()
    data = encode(batch)
    # A repeated task writes another file; only the file that is returned counts.
    name = f"{CLUSTERED_FOLDER}/{job.session}/{uuid.uuid4().hex}.parquet"
    job.output.write(name, data)
    places = zip(batch["file"].to_pylist(), batch["row"].to_pylist(), strict=True)
    described = {
        "name": name,
        "partition": int(np.min(batch["partition"].to_numpy())),
        "rows": batch.num_rows,
        "identities": str(identity_sum(places)),
        "size": len(data),
        "segments": json.dumps(list(segments(data))),
    }
    return pa.Table.from_pylist([described], schema=_STORED)


_STORED = pa.schema(
    [
        ("name", pa.string()),
        ("partition", pa.int64()),
        ("rows", pa.int64()),
        ("identities", pa.string()),  # 64 bits without a sign
        ("size", pa.int64()),
        ("segments", pa.string()),
    ]
)


def _shard(batch: pa.Table) -> Shard:
    shard: Shard = unpack(unwrap(batch)[1])
    return shard


def is_lost_node(error: BaseException) -> bool:
    """Return whether the pass failed because a node was lost with its part of the shuffle: Ray does not rebuild it."""
    # The shuffle's own errors have no public module.
    return any(
        type(cause).__name__.startswith("ShuffleFileServer") or isinstance(cause, _LOST) for cause in causes(error)
    )


PARTITION_BYTES, PARTITION_ROWS = 64 * 2**20, 25_000
"""Approximate limits of a partition, because a few are sorted in memory at a time. Rows are bounded as well, because
the text size in a Parquet file's metadata can be far too low."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Assignment of rows to partitions.

    Attributes:
        starts, counts: start and length of each category's interval, in rows; by category.
        rows_per_partition: approximate, because a hash is even only on average.
    """

    starts: Mapping[str, int]
    counts: Mapping[str, int]
    rows_per_partition: int

    @classmethod
    def of(cls, counts: Mapping[str, int], rows_per_partition: int) -> Placement:
        """Return the placement for a catalog with `counts` rows of each category."""
        names = sorted((name for name, count in counts.items() if count), key=lambda name: (_hash(name), name))
        starts = dict(zip(names, accumulate((counts[name] for name in names), initial=0), strict=False))
        return cls(starts, {name: counts[name] for name in names}, rows_per_partition)

    @property
    def num_partitions(self) -> int:
        """Number of partitions, at least one."""
        return max(1, math.ceil(sum(self.counts.values()) / self.rows_per_partition))

    def partition(self, category: str, file: int, row: int) -> int:
        """Return the partition of the row `(file, row)`. A category that was not counted goes to the first one: its
        rows could not be read whole, though their category could."""
        place = self.starts.get(category, 0) + self.counts.get(category, 0) * _hash(f"{file}:{row}") // 2**32
        return place // self.rows_per_partition


def rows_per_partition(num_rows: int, num_bytes: int) -> int:
    """Return the number of rows that hold about `PARTITION_BYTES`, from 1 to `PARTITION_ROWS`."""
    return max(1, min(PARTITION_ROWS, PARTITION_BYTES * num_rows // max(num_bytes, num_rows, 1)))


def _hash(text: str) -> int:
    """Return a 32-bit hash, the same in every process."""
    return zlib.crc32(text.encode())
