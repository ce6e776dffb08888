"""Who sees which column: kept on the host, for one cohort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpd_core.layout import EVERYBODY, PUBLIC, IntArray, visible

_UNSEEN = 2**62
"""The position of a column that holds nothing."""


class SeenColumns:
    """Of P prompts' columns, on the host, who sees them.

    Attributes:
        width: W, of the columns in front, which are the trunk's.
        used: int64 [P], columns behind them that are in use.
    """

    def __init__(self, width: int, used: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray) -> None:
        """`scopes`, `lasts`, `positions`: int64 [P, W + C]."""
        self.width, self.used = width, used
        self._scopes, self._lasts, self._positions = scopes, lasts, positions
        self._stored: tuple[IntArray, IntArray] = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    @classmethod
    def of_trunks(cls, lengths: IntArray, width: int, capacity: int) -> SeenColumns:
        """Of trunks of these lengths, without branches."""
        shape = (len(lengths), capacity)
        found = cls(
            width,
            np.zeros(len(lengths), dtype=np.int64),
            np.full(shape, PUBLIC),
            np.full(shape, EVERYBODY),
            np.full(shape, _UNSEEN),
        )
        found.move_tails(lengths)
        return found

    @classmethod
    def joined(cls, parts: Sequence[SeenColumns]) -> SeenColumns:
        """All prompts of parts of one capacity."""
        arrays = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("used", "_scopes", "_lasts", "_positions")
        )
        return cls(parts[0].width, *arrays)

    def rows(self, picked: IntArray, capacity: int) -> SeenColumns:
        """Some of the prompts, with so many columns."""

        def moved(array: IntArray, fill: int) -> IntArray:
            kept = array[picked, :capacity]
            return np.pad(kept, ((0, 0), (0, capacity - kept.shape[1])), constant_values=fill)

        return SeenColumns(
            self.width,
            self.used[picked],
            moved(self._scopes, PUBLIC),
            moved(self._lasts, EVERYBODY),
            moved(self._positions, _UNSEEN),
        )

    @property
    def capacity(self) -> int:
        """W + C."""
        return int(self._positions.shape[1])

    @property
    def most_used(self) -> int:
        """Columns of branches, of the prompt that has the most."""
        return int(self.used.max(initial=0))

    def move_tails(self, lengths: IntArray) -> None:
        """Trunks have these lengths now. In front of a text there is nothing: columns of zeros, at negative
        positions."""
        self._positions[:, : self.width] = lengths[:, None] - self.width + np.arange(self.width)

    def add(
        self, prompts: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Gives t tokens of branches their columns.

        Returns:
            Columns, int64 [t]; how far the ancestors of each are before it, int64 [t, W + columns in use], 0 for all
            other columns; the nearest W ancestors, the nearest first, int64 [t, W].
        """
        ranks = np.arange(len(prompts)) - np.searchsorted(prompts, prompts)
        columns = self.width + self.used[prompts] + ranks
        self._scopes[prompts, columns], self._lasts[prompts, columns] = scopes, lasts
        self._positions[prompts, columns] = positions
        self.used = self.used + np.bincount(prompts, minlength=len(self.used))
        self._stored = prompts, columns
        here = slice(self.width + self.most_used)
        k_positions = self._positions[prompts, here]
        # A token's ancestors are those that it sees before itself: one at each position.
        seen = visible(
            scopes[:, None],
            positions[:, None] - 1,
            self._scopes[prompts, here],
            self._lasts[prompts, here],
            k_positions,
        )
        distances = np.where(seen, positions[:, None] - k_positions, 0)
        nearest = [(distances == distance).argmax(axis=1) for distance in range(1, self.width + 1)]
        return columns, distances, np.array(nearest, dtype=np.int64).reshape(self.width, len(prompts)).T

    def reject(self, wrong: npt.NDArray[np.bool_], counts: IntArray) -> None:
        """Hides some of the tokens that were added last, `counts` of each prompt."""
        prompts, columns = self._stored
        self._positions[prompts[wrong], columns[wrong]] = _UNSEEN
        firsts = self.width + self.used - counts
        kept = np.zeros_like(counts)
        np.maximum.at(kept, prompts[~wrong], (columns - firsts[prompts])[~wrong] + 1)
        self.used = self.used - counts + kept
