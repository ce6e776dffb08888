"""Sharding: cuts a catalog into shards, or a sample of it for a pilot. Pure: from measured files to a plan.

files     |---- a.parquet ----|--- b.parquet ---|- c.jsonl -|
shards    |0|-1-|---2---|---3---|---4---|--5--|-6-|7|8|
           small first: results soon, the pool warms up; small last: no actor waits long for another
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core import CategorySchema
from pipelines.catalog.input_files import SourceFile
from pipelines.config.operation import ShardConfig

# Rough and only relative: shards of equal estimate should take about equally long.
BYTES_PER_TOKEN = 4
TOKENS_PER_ATTRIBUTE = 12  # its key and its value
# A shard may grow or stay short by this share of its budget to end where a row group ends.
ALIGNMENT_SLACK = 0.25
# Of the target: towards the end of a catalog, shards become smaller down to this.
LEAST_AT_THE_END = 0.25
# About, and of input: for a catalog that would have more shards, the target is raised.
_MOST_SHARDS, _MOST_BYTES = 100_000, 32 * 2**20


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows [start, stop) of one file.

    Attributes:
        file: index into the plan's files.
        num_rows: number of rows; fewer than stop - start if JSONL lines are blank.
        byte_start, byte_stop: offsets of those lines in a JSONL file; 0 for Parquet.
    """

    file: int
    start: int
    stop: int
    num_rows: int
    byte_start: int = 0
    byte_stop: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """The unit of work, of commit and of retry."""

    id: int
    pieces: tuple[RowRange, ...]
    num_rows: int
    estimated_tokens: int


def shard_from_dict(data: Mapping[str, Any]) -> Shard:
    """Rebuild a shard from its `dataclasses.asdict` form."""
    return Shard(**{**data, "pieces": tuple(RowRange(**piece) for piece in data["pieces"])})


def tokens_per_row(schemas: Mapping[str, CategorySchema]) -> int:
    """Return the tokens that a row costs besides its own text: keys and values of an average category."""
    num_attributes = sum(len(schema.attributes) for schema in schemas.values())
    return round(TOKENS_PER_ATTRIBUTE * num_attributes / max(1, len(schemas)))


def plan_shards(
    files: Sequence[SourceFile],
    config: ShardConfig,
    row_tokens: int,
    num_actors: int,
    limit: int | None = None,
    only: Mapping[str, Sequence[int]] | None = None,
    *,
    is_spread: bool = False,
    num_shards: int | None = None,
) -> list[Shard]:
    """Cut `files`, in order, into shards that cover every row exactly once.

    Args:
        limit: maximum number of rows: the first ones, or evenly spaced ones if `is_spread`.
        only: row numbers (ascending, by file name) to which the rows are limited.
        num_shards: if given, the rows are dealt to so many shards in turn, so that each is a sample of all.
    """

    def runs() -> Iterator[_Run]:
        every = _runs(files) if only is None else _selected(_runs(files), files, only)
        if limit is None or not is_spread:
            return _limited(every, limit)
        num_rows = sum(file.num_rows if only is None else len(only.get(file.name, ())) for file in files)
        return _spread(every, limit, num_rows) if limit < num_rows else every

    if num_shards is not None:
        return _dealt(runs(), num_shards, row_tokens)
    total_tokens = sum(run.tokens(row_tokens) for run in runs())
    cutter = _Cutter(config, num_actors, total_tokens)
    for run in runs():
        cutter.add(run, row_tokens)
    cutter.close()
    return cutter.shards


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring rows with about equal bytes: a Parquet row group, or one JSONL line."""

    file: int
    start: int
    stop: int
    num_rows: int
    num_bytes: int
    byte_start: int
    byte_stop: int

    def tokens(self, row_tokens: int) -> int:
        # A blank line costs nothing.
        return self.num_bytes // BYTES_PER_TOKEN + self.num_rows * row_tokens if self.num_rows else 0

    @property
    def piece(self) -> RowRange:
        return RowRange(self.file, self.start, self.stop, self.num_rows, self.byte_start, self.byte_stop)

    def cut(self, first: int, num_rows: int) -> _Run:
        """Return some of its rows; all of them as they are."""
        if num_rows == self.num_rows:
            return self
        start, ends = self.start + first, (first, first + num_rows)
        before, until = (self.num_bytes * end // self.num_rows for end in ends)
        return _Run(self.file, start, start + num_rows, num_rows, until - before, 0, 0)


def _runs(files: Sequence[SourceFile]) -> Iterator[_Run]:
    for index, file in enumerate(files):
        row = offset = 0
        for num_rows, num_bytes in zip(file.row_counts, file.byte_counts, strict=True):
            start, begin = row, offset
            if file.is_in_lines:
                row, offset = row + 1, offset + num_bytes
            else:
                row += num_rows
            yield _Run(index, start, row, num_rows, num_bytes, begin, offset)


def _selected(runs: Iterator[_Run], files: Sequence[SourceFile], only: Mapping[str, Sequence[int]]) -> Iterator[_Run]:
    """Yield the parts of `runs` that hold the wanted rows and no others."""
    for run in runs:
        wanted = only.get(files[run.file].name, ())
        rows = wanted[bisect_left(wanted, run.start) : bisect_left(wanted, run.stop)]
        if run.stop - run.start == 1:
            # A JSONL line, which cannot be cut: its bytes say where it is.
            if rows:
                yield run
            continue
        for _, neighbours in itertools.groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
            numbers = [row for _, row in neighbours]
            yield run.cut(numbers[0] - run.start, len(numbers))


def _dealt(runs: Iterator[_Run], num_shards: int, row_tokens: int) -> list[Shard]:
    rows = [row for run in runs for row in (run.cut(place, 1) for place in range(run.num_rows))]
    parts = [rows[first::num_shards] for first in range(min(num_shards, len(rows)))]
    return [
        Shard(index, tuple(row.piece for row in part), len(part), sum(row.tokens(row_tokens) for row in part))
        for index, part in enumerate(parts)
    ]


def _spread(runs: Iterator[_Run], limit: int, total: int) -> Iterator[_Run]:
    """Yield `limit` of `total` rows, evenly spaced."""
    seen = 0
    for run in runs:
        wanted = range(seen * limit // total, (seen + run.num_rows) * limit // total)
        if len(wanted) == run.num_rows:
            yield run
        else:
            # The n-th is the first row by which n + 1 are due.
            places = (-(-(number + 1) * total // limit) - 1 - seen for number in wanted)
            yield from (run.cut(place, 1) for place in places)
        seen += run.num_rows


def _limited(runs: Iterator[_Run], limit: int | None) -> Iterator[_Run]:
    left = limit
    for run in runs:
        if left is None or run.num_rows <= left:
            yield run
        elif left > 0:
            yield run.cut(0, left)
        if left is not None:
            left = max(0, left - run.num_rows)
            if left == 0:
                return


class _Cutter:
    """Cutter that fills one shard after another; each has a token budget and caps on bytes and rows."""

    def __init__(self, config: ShardConfig, num_actors: int, total_tokens: int) -> None:
        self.shards: list[Shard] = []
        self._config = config
        self._num_actors = num_actors
        # Every shard costs the driver memory and the storage some twenty requests, however small it is.
        self._target = max(config.target_tokens, total_tokens / _MOST_SHARDS)
        self._unplanned = total_tokens
        self._start_shard()

    def _start_shard(self) -> None:
        self._pieces: list[RowRange] = []
        self._rows = self._bytes = self._tokens = 0
        target, ramp = self._target, self._config.ramp
        number = len(self.shards)
        most = target * ramp[number] if number < len(ramp) else target
        # Towards the end every actor gets at least two shards of what is left.
        least = min(most, target * (LEAST_AT_THE_END if ramp else 1.0))
        self._budget = max(least, min(most, self._unplanned / (2 * self._num_actors)))

    def add(self, run: _Run, row_tokens: int) -> None:
        while run.num_rows > self._num_fitting(run, row_tokens):
            take = self._num_fitting(run, row_tokens)
            nearly_full = self._tokens >= self._budget * (1 - ALIGNMENT_SLACK)
            if take and not nearly_full:
                self._take(run.cut(0, take), row_tokens)
                run = run.cut(take, run.num_rows - take)
            self.close()
        self._take(run, row_tokens)

    def _num_fitting(self, run: _Run, row_tokens: int) -> int:
        """Return how many of the run's rows fit into the shard. An empty shard takes at least one, however large."""
        if run.num_rows == 0:
            return 0
        row_size, row_cost = run.num_bytes / run.num_rows, max(1e-9, run.tokens(row_tokens) / run.num_rows)
        by_size = (_MOST_BYTES - self._bytes) / row_size if row_size else run.num_rows
        cap = min(run.num_rows, self._config.max_rows - self._rows, int(by_size))
        room = self._budget - self._tokens
        if cap == run.num_rows and run.tokens(row_tokens) <= room + self._budget * ALIGNMENT_SLACK * (run.num_rows > 1):
            return run.num_rows
        fitting = max(0, min(cap, int(room / row_cost)))
        return fitting if fitting or self._rows else 1

    def _take(self, run: _Run, row_tokens: int) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last and last.file == run.file and last.stop == run.start:
            self._pieces[-1] = RowRange(
                run.file, last.start, run.stop, last.num_rows + run.num_rows, last.byte_start, run.byte_stop
            )
        else:
            self._pieces.append(run.piece)
        self._rows += run.num_rows
        self._bytes += run.num_bytes
        self._tokens += run.tokens(row_tokens)
        self._unplanned -= run.tokens(row_tokens)

    def close(self) -> None:
        """End the current shard. Blank lines alone do not make a shard."""
        if self._rows:
            self.shards.append(Shard(len(self.shards), tuple(self._pieces), self._rows, self._tokens))
        self._start_shard()
