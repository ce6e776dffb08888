"""Reader of all records of a small catalog at once: training data, a benchmark's workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpd_core import CategorySchema, Record
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import RowRefusal, default_id, row_id, to_record
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig


class CatalogRow(NamedTuple):
    """A row of a catalog.

    Attributes:
        number: row number in its file.
        product_id: product id; None if the row has none.
        record: the record, or the reason why there is none.
    """

    number: int
    product_id: str | None
    record: Record | RowRefusal


def read_records(config: InputConfig, schemas: Mapping[str, CategorySchema]) -> Iterator[CatalogRow]:
    """Yield every row of the catalog, with the ids that a job assigns.

    Raise `UsageError` or `RunError` for a file that cannot be read.
    """
    for index, source in enumerate(scan_sources(config).files):
        piece = RowRange(index, 0, source.stop, source.num_rows, 0, source.size)
        for row in read_piece(*source.rows, piece, config.columns, anonymous=config.anonymous):
            own_id = default_id(source.name, row.number)
            found = own_id if config.id is None else row_id(row.values or {}, config)
            record: Record | RowRefusal = row.problem or RowRefusal("unreadable", "the row could not be read")
            if row.values is not None:
                record = to_record(row.values, own_id, config, schemas)
            yield CatalogRow(row.number, found, record)
