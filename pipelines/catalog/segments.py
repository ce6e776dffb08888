"""Segments: runs of rows that are best read together, found when a file is measured."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileSegment:
    """A run of rows that are best read together: a Parquet row group, or one JSONL line.

    Attributes:
        num_rows: number of rows; 0 for a blank JSONL line, which keeps its number but is not a row.
        num_bytes: uncompressed size of the mapped columns.
    """

    num_rows: int
    num_bytes: int


class LineSegments(Sequence[FileSegment]):
    """Lines of a JSONL file as segments, stored in 8 bytes a line because a catalog can have very many."""

    def __init__(self, lengths: array[int], blank: set[int]) -> None:
        self._lengths = lengths
        self._blank = blank

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return FileSegment(num_rows=int(index not in self._blank), num_bytes=self._lengths[index])
