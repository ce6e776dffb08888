"""Which partition a row goes to. Pure: from the number of rows of each category.

categories   |-- Boots --|Caps|---------- Shirts ----------|Ties|
partitions   |    0     |     1     |     2     |     3     | 4 |

Every category is a stretch of one line, cut into partitions of equal length. A row stands at a place of its category's
stretch that a hash of its identity decides (the salt of its key), so that a category that is larger than a partition is
dealt to several and no partition becomes much larger than the others, however the categories are spread. Categories
stand on the line in the order of their hashes: what is decoded first is no alphabetical part of the catalog.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

PARTITION_BYTES, PARTITION_ROWS = 64 * 2**20, 25_000
"""Of a partition, at most, about: a few are sorted in memory at a time. What a Parquet file says of its text's size can
be far below it, so the rows are bounded as well."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of each category go.

    Attributes:
        starts, counts: of a category's stretch; by category.
        rows_per_partition: about; a hash is even on average only.
    """

    starts: Mapping[str, int]
    counts: Mapping[str, int]
    rows_per_partition: int

    @classmethod
    def of(cls, counts: Mapping[str, int], rows_per_partition: int) -> Placement:
        """For a catalog with so many rows of each category."""
        names = sorted((name for name, count in counts.items() if count), key=lambda name: (_hash(name), name))
        starts = dict(zip(names, accumulate((counts[name] for name in names), initial=0), strict=False))
        return cls(starts, {name: counts[name] for name in names}, rows_per_partition)

    @property
    def num_partitions(self) -> int:
        """At least one."""
        return max(1, math.ceil(sum(self.counts.values()) / self.rows_per_partition))

    def partition(self, category: str, file: int, row: int) -> int:
        """The partition of the row `(file, row)`. A category that was not counted goes to the first one: its rows are
        some that could not be read whole, though their category could."""
        place = self.starts.get(category, 0) + self.counts.get(category, 0) * _hash(f"{file}:{row}") // 2**32
        return place // self.rows_per_partition


def rows_per_partition(num_rows: int, num_bytes: int) -> int:
    """So many rows that a partition holds about `PARTITION_BYTES` of a catalog with so much text, if not fewer."""
    return max(1, min(PARTITION_ROWS, PARTITION_BYTES * num_rows // max(num_bytes, num_rows, 1)))


def _hash(text: str) -> int:
    """Of 32 bits, the same in every process."""
    return zlib.crc32(text.encode())
