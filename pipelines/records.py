"""All records of a catalog that is small enough to be read at once: training data, a benchmark's workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpd_core import CategorySchema, Record
from pipelines.config import InputConfig
from pipelines.readers import read_piece
from pipelines.rows import Refusal, to_record
from pipelines.sharding import Piece
from pipelines.sources import scan_sources


def read_records(config: InputConfig, schemas: Mapping[str, CategorySchema]) -> Iterator[tuple[int, Record | Refusal]]:
    """(row number in its file, record or the reason why there is none) of every row.

    Raises `UsageError` or `RunError` for a file that cannot be read.
    """
    for index, source in enumerate(scan_sources(config)):
        # A Parquet file's segments are row groups, a JSONL file's its lines, blank ones included.
        stop = source.num_rows if source.format == "parquet" else len(source.segments)
        piece = Piece(index, 0, stop, source.num_rows, 0, source.size)
        for row in read_piece(source.name, source.format, piece, config.columns, anonymous=config.anonymous):
            if row.values is None:
                yield row.number, row.problem or Refusal("unreadable", "the row could not be read")
            else:
                yield row.number, to_record(row.values, str(row.number), config, schemas)
