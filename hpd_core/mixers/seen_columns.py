"""Visibility of columns, kept on the host, for one cohort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpd_core.layout import EVERYBODY, PUBLIC, IntArray, visible

_UNSEEN = 2**62
"""Position of an empty column."""


@dataclass(frozen=True, slots=True)
class AncestorPairs:
    """Pairs of t branch tokens with each of their ancestors after the trunk; n pairs, token by token.

    A branch has tens of tokens, and its prompt has thousands of columns, of other branches. So pairs are kept, not a
    matrix.

    Attributes:
        tokens: int64 [n], of the t.
        columns: int64 [n], of the ancestors, counted from the end of the trunk's.
        distances: int64 [n], how far these are before the token, at least 1.
    """

    tokens: IntArray
    columns: IntArray
    distances: IntArray


class SeenColumns:
    """Visibility of the columns of P prompts, on the host.

    Attributes:
        width: W, number of columns in front, which are the trunk's.
        used: int64 [P], columns after them that are in use.
    """

    def __init__(self, width: int, used: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray) -> None:
        """Take `scopes`, `lasts`, `positions`: int64 [P, W + C]."""
        self.width, self.used = width, used
        self._scopes, self._lasts, self._positions = scopes, lasts, positions
        self._stored: tuple[IntArray, IntArray] = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    @classmethod
    def of_trunks(cls, lengths: IntArray, width: int, capacity: int) -> SeenColumns:
        """Return the columns of trunks of these lengths, without branches."""
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
        """Join the prompts of all parts, which have one capacity."""
        arrays = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("used", "_scopes", "_lasts", "_positions")
        )
        return cls(parts[0].width, *arrays)

    def rows(self, picked: IntArray, capacity: int) -> SeenColumns:
        """Return the picked prompts, with `capacity` columns."""

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
        """Number of columns per prompt, W + C."""
        return int(self._positions.shape[1])

    @property
    def most_used(self) -> int:
        """Number of branch columns of the prompt that has the most."""
        return int(self.used.max(initial=0))

    def move_tails(self, lengths: IntArray) -> None:
        """Move the trunks' columns to the trunks' new lengths. Before a text there are columns of zeros, at negative
        positions.
        """
        self._positions[:, : self.width] = lengths[:, None] - self.width + np.arange(self.width)

    def add(
        self, prompts: IntArray, scopes: IntArray, lasts: IntArray, positions: IntArray
    ) -> tuple[IntArray, AncestorPairs, IntArray]:
        """Assign columns to t branch tokens; those of a prompt are neighbours.

        Returns:
            Columns, int64 [t]; pairs with their ancestors; the nearest W ancestors, nearest first, int64 [t, W].
        """
        picked, firsts, counts = np.unique(prompts, return_index=True, return_counts=True)
        columns = self.width + self.used[prompts] + np.arange(len(prompts)) - np.repeat(firsts, counts)
        self._scopes[prompts, columns], self._lasts[prompts, columns] = scopes, lasts
        self._positions[prompts, columns] = positions
        self.used = self.used + np.bincount(prompts, minlength=len(self.used))
        self._stored = prompts, columns
        found = []
        # Prompt by prompt: matrices of tokens and columns that stay in a processor's cache.
        for prompt, first, stop in zip(picked.tolist(), firsts.tolist(), (firsts + counts).tolist(), strict=True):
            here = slice(self.width + int(self.used[prompt]))
            # A token's ancestors are those that it sees before itself: one at each position.
            seen = visible(
                scopes[first:stop, None],
                positions[first:stop, None] - 1,
                self._scopes[prompt, here],
                self._lasts[prompt, here],
                self._positions[prompt, here],
            )
            token, column = np.divmod(np.flatnonzero(seen), seen.shape[1])  # of bits in a row it is quicker
            found.append((first + token, column))
        tokens, ancestors = (np.concatenate(each) for each in zip(*found, strict=True))
        distances = positions[tokens] - self._positions[prompts[tokens], ancestors]
        nearest = np.zeros((len(prompts), self.width), dtype=np.int64)
        is_near = distances <= self.width
        nearest[tokens[is_near], distances[is_near] - 1] = ancestors[is_near]
        is_behind = ancestors >= self.width
        pairs = AncestorPairs(tokens[is_behind], ancestors[is_behind] - self.width, distances[is_behind])
        return columns, pairs, nearest

    def reject(self, wrong: npt.NDArray[np.bool_], counts: IntArray) -> None:
        """Hide the tokens `wrong` of those added last, `counts` for each prompt."""
        prompts, columns = self._stored
        self._positions[prompts[wrong], columns[wrong]] = _UNSEEN
        firsts = self.width + self.used - counts
        kept = np.zeros_like(counts)
        np.maximum.at(kept, prompts[~wrong], (columns - firsts[prompts])[~wrong] + 1)
        self.used = self.used - counts + kept
