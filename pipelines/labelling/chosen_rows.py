"""Choice of the catalog rows to label: all, the first ones, or a sample."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from pipelines.catalog.input_files import SourceFile
from pipelines.catalog.readers import SourceRow, read_piece
from pipelines.catalog.sharding import plan_shards
from pipelines.config.labelling import LabelConfig
from pipelines.config.operation import ShardConfig


class ChosenRows:
    """The rows to label, in the catalog's order."""

    def __init__(self, files: Sequence[SourceFile], config: LabelConfig, limit: int | None) -> None:
        self._files, self._config, self._limit = files, config, limit
        total = sum(file.num_rows for file in files)
        self._drawn = None if config.sample is None else sorted(_draw(total, config.sample, config.seed))
        self.count = min(total, limit or total) if self._drawn is None else len(self._drawn)

    def read(self) -> Iterator[tuple[SourceFile, SourceRow]]:
        """Yield the chosen rows; reads only the pieces of files that hold one."""
        pieces = [
            piece for shard in plan_shards(self._files, ShardConfig(), 0, 1, self._limit) for piece in shard.pieces
        ]
        start = 0
        for piece in pieces:
            stop = start + piece.num_rows
            wanted = None
            if self._drawn is not None:
                wanted = set(self._drawn[bisect_left(self._drawn, start) : bisect_left(self._drawn, stop)])
            if wanted is None or wanted:
                file = self._files[piece.file]
                columns = self._config.input.columns
                rows = read_piece(*file.rows, piece, columns, anonymous=self._config.input.anonymous)
                yield from ((file, row) for number, row in enumerate(rows, start) if wanted is None or number in wanted)
            start = stop


def _draw(total: int, count: int, seed: int) -> list[int]:
    """Draw `count` of `total` numbers; a larger draw with the same seed begins with the same ones."""
    generator = random.Random(seed)
    moved: dict[int, int] = {}
    drawn = []
    for first in range(min(count, total)):
        place = generator.randrange(first, total)
        drawn.append(moved.get(place, place))
        moved[place] = moved.get(first, first)
    return drawn
