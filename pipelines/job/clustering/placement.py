"""Partition of each row, computed only from the number of rows of each category.

categories   |-- Boots --|Caps|---------- Shirts ----------|Ties|
partitions   |    0     |     1     |     2     |     3     | 4 |

Every category is an interval of one line, which is cut into partitions of equal length. A hash of a row's identity (the
salt of its key) decides its place in its category's interval. So a category larger than a partition is spread over
several, and no partition becomes much larger than the others. Categories stand on the line in the order of their
hashes, so that the rows decoded first are not an alphabetical part of the catalog.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

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
