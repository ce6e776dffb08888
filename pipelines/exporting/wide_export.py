"""Export of a run as a wide table: one row a product, streamed shard by shard into one file or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.exporting.answers import ShardAnswers
from pipelines.exporting.left_out import LeftOutAnswers
from pipelines.exporting.outputs import Outputs
from pipelines.exporting.wide_columns import WideColumns
from pipelines.exporting.wide_rows import Titles, wide_rows
from pipelines.exporting.writers import (
    MAX_CELL_DIGITS,
    MAX_SHEET_ROWS,
    CsvWriter,
    ExcelWriter,
    JsonWriter,
    ParquetWriter,
    Style,
    Writer,
)

STEM = "products"


@dataclass(frozen=True, slots=True)
class WideKind:
    """Kind of file.

    Attributes:
        only_text: whether all values are texts there, numbers as plain decimals.
        for_readers: whether it has columns for people, too.
        max_rows: most rows of a file of this kind; None without a limit.
        max_digits: most digits of a number there; None for as many as a double holds.
    """

    suffix: str
    open: Callable[[Path, WideColumns, Style, LeftOutAnswers], Writer]
    only_text: bool = False
    for_readers: bool = False
    max_rows: int | None = None
    max_digits: int | None = None


WIDE_KINDS: Mapping[str, WideKind] = {
    "wide.parquet": WideKind(".parquet", ParquetWriter),
    "csv": WideKind(".csv", CsvWriter, only_text=True),
    "xlsx": WideKind(".xlsx", ExcelWriter, for_readers=True, max_rows=MAX_SHEET_ROWS, max_digits=MAX_CELL_DIGITS),
    "jsonl": WideKind(".jsonl", JsonWriter),
}


@dataclass(slots=True)
class WideFiles:
    """Files of at most `rows_per_file` rows; each appears once it is complete."""

    outputs: Outputs
    kind: WideKind
    columns: WideColumns
    style: Style
    left_out: LeftOutAnswers
    rows_per_file: int | None

    def write(self, tables: Iterable[pa.Table]) -> list[str]:
        """Write the tables; return the names of the files, at least one."""
        names: list[str] = []
        cuts = _cut(tables, self.rows_per_file)
        batch = next(cuts, None)
        while batch is not None or not names:
            number = None if self.rows_per_file is None else len(names)
            name = self.outputs.name(STEM, self.kind.suffix, number)
            with self.outputs.writing(name) as path, ExitStack() as closing:
                writer = self.kind.open(path, self.columns, self.style, self.left_out)
                closing.callback(writer.close)
                while batch is not None:
                    table, is_last = batch
                    writer.write(table)
                    batch = next(cuts, None)
                    if is_last:
                        break
            names.append(name)
        if self.rows_per_file is not None:
            self.outputs.remove_later_parts(STEM, self.kind.suffix, len(names))
        return names


def _cut(tables: Iterable[pa.Table], rows: int | None) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the tables in pieces, each with whether a file ends after it."""
    filled = 0
    for table in tables:
        start = 0
        while start < table.num_rows:
            piece = table.slice(start, None if rows is None else rows - filled)
            start, filled = start + piece.num_rows, filled + piece.num_rows
            is_last = filled == rows
            filled = 0 if is_last else filled
            yield piece, is_last


def wide_tables(
    shards: Iterable[ShardAnswers],
    columns: WideColumns,
    left_out: LeftOutAnswers,
    titles: Titles,
    takes_ids: bool,
    max_digits: int | None,
) -> Iterator[pa.Table]:
    """Return the rows of each shard, lazily."""
    return (wide_rows(shard, columns, left_out, titles, takes_ids=takes_ids, max_digits=max_digits) for shard in shards)
