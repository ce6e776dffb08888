"""Survey of the catalog in one pass: counts of rows by category and length, and candidates for a pilot.

Every row gets a pseudo-random number from the seed and its place. So a draw depends on neither order nor chunks, and a
second draw continues where the first ended.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hpd_core import ErrorCode, Record
from pipelines.catalog.readers import SourceRow, read_piece
from pipelines.catalog.rows import RowRefusal, row_category, to_record
from pipelines.catalog.sharding import RowRange
from pipelines.job.preflight import PlannedJob, count_unknown
from pipelines.store.totals import NameCounts

# Rows between two calls of `on_progress`.
_CHUNK = 10_000
# Candidates kept of all cells together, about, and of each of them at least.
_MOST_KEPT = 2_000_000
_FEWEST_KEPT = 50
_MASK = (1 << 64) - 1


class SurveyCell(NamedTuple):
    """Rows of one category whose texts are about equally long: between 4**band and 4**(band + 1) bytes."""

    category: str
    band: int


class SurveyCandidate(NamedTuple):
    """Row that may be drawn. Those with the smallest `number` are drawn first."""

    number: int
    file: int
    row: int
    text_bytes: int
    category: str


@dataclass(slots=True)
class CellCount:
    """Counts of a cell: its rows, the bytes of their texts, and the candidates with the smallest numbers."""

    rows: int = 0
    text_bytes: int = 0
    candidates: list[SurveyCandidate] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Survey:
    """Counts of a catalog.

    `dead`: reason -> rows that will be dead-lettered before they reach an engine. `unknown_categories`: rows without
    a schema by the category's name (the most frequent names).
    """

    cells: Mapping[SurveyCell, CellCount]
    dead: Counter[str]
    unknown_categories: NameCounts = field(default_factory=NameCounts)

    @property
    def num_rows(self) -> int:
        """Number of all rows, including dead ones."""
        return sum(cell.rows for cell in self.cells.values()) + self.dead.total()


def survey_catalog(
    job: PlannedJob, seed: int, keep: int, on_progress: Callable[[int], None] = lambda rows: None
) -> Survey:
    """Read every planned row and count it.

    Args:
        keep: candidates kept per cell, since no draw takes more. With very many cells, fewer are kept.
        on_progress: callback that gets the number of rows read so far.

    Raises `RunError` if a file cannot be read.
    """
    cells: dict[SurveyCell, CellCount] = defaultdict(CellCount)
    dead: Counter[str] = Counter()
    unknown = NameCounts()
    for count, (file, row) in enumerate(planned_rows(job), start=1):
        record = _to_record(row, job)
        if isinstance(record, Record):
            size = sum(len(text.encode()) for text in record.fields.values())
            cell = cells[SurveyCell(record.category, band(size))]
            cell.rows += 1
            cell.text_bytes += size
            number = row_number(seed, job.plan.files[file].name, row.number)
            cell.candidates.append(SurveyCandidate(number, file, row.number, size, record.category))
            limit = min(keep, max(_FEWEST_KEPT, _MOST_KEPT // len(cells)))
            if len(cell.candidates) >= 2 * limit + _FEWEST_KEPT:
                _prune(cell, limit)
        else:
            dead[record.code] += 1
            if record.code == ErrorCode.NO_SCHEMA and row.values is not None:
                unknown.add(count_unknown([row_category(row.values, job.config.input)]), 1)
        if count % _CHUNK == 0:
            on_progress(count)
    for cell in cells.values():
        _prune(cell, keep)
    return Survey(dict(cells), dead, unknown)


def band(text_bytes: int) -> int:
    """Return the length band of a text."""
    return max(0, text_bytes.bit_length() - 1) // 2


def row_number(seed: int, file: str, row: int) -> int:
    """Return 64 pseudo-random bits of a row, the same in every process (splitmix64)."""
    state = (row * 0x9E3779B97F4A7C15 + _file_key(seed, file)) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


@functools.cache
def _file_key(seed: int, file: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{file}".encode()).digest()[:8], "little")


def _prune(cell: CellCount, keep: int) -> None:
    cell.candidates = heapq.nsmallest(keep, cell.candidates)


def planned_rows(job: PlannedJob) -> Iterator[tuple[int, SourceRow]]:
    """Yield every planned row with its file's index."""
    config = job.config.input
    for piece in merged_pieces(job):
        source = job.plan.files[piece.file]
        for row in read_piece(*source.rows, piece, config.columns, anonymous=config.anonymous):
            yield piece.file, row


def merged_pieces(job: PlannedJob) -> list[RowRange]:
    """Merge neighbouring pieces of the plan, so that each file is opened once and not once per shard."""
    merged: list[RowRange] = []
    for piece in itertools.chain.from_iterable(shard.pieces for shard in job.plan.shards):
        last = merged[-1] if merged else None
        if last is not None and (last.file, last.stop) == (piece.file, piece.start) and piece.byte_stop == 0:
            merged[-1] = replace(last, stop=piece.stop, num_rows=last.num_rows + piece.num_rows)
        else:
            merged.append(piece)
    return merged


def _to_record(row: SourceRow, job: PlannedJob) -> Record | RowRefusal:
    if row.values is None:
        return row.problem or RowRefusal("unreadable", "the row could not be read")
    return to_record(row.values, "", job.config.input, job.schemas)
