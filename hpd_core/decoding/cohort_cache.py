"""The KV cache of one cohort: a block of the pool, and who may see each of its columns.

Every prompt has a row of the block and appends to it in whatever order its tokens come; a column is the place of one
token. The scopes and the position kept for each column say who sees it (hpd_core/layout.py), so nothing is ever moved
within a row. An empty column, or that of a rejected node, has a position that no token sees.

Prompts are grouped by prefix, so that the attention reads a prefix once for all of its prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hpd_core.attention.kv_cache import CachePool
from hpd_core.attention.plan import AttentionPlan, PrefixCache, PromptGroup
from hpd_core.decoding.cohort_input import NewTokens, counts_without_last
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray
from hpd_core.system.device import to_device

UNSEEN = 2**62
"""Position of an empty cache column: later than every token's, so that none sees it."""


class CohortCache:
    """Keys and values of P prompts, and for each column its first and last scope, and its position.

    Attributes:
        prefixes: the prefix of each prompt that it attends to in place, or None.
        used: int64 [P], each prompt's columns in use. A new array with every change: plans keep the old one.
    """

    def __init__(
        self, pool: CachePool, prefixes: Sequence[PrefixCache | None], used: IntArray, num_columns: int, room: int
    ) -> None:
        """Allocate `num_columns` and `room`, the number of free columns worth having after those in use."""
        self._pool, self._room = pool, room
        self.prefixes, self.used = list(prefixes), used
        self._allocate(num_columns + room)

    def _allocate(self, num_columns: int) -> None:
        num_prompts, capacity = len(self.prefixes), self._pool.order.room_for(num_columns)
        self._block = self._pool.take(num_prompts, capacity)
        size = (num_prompts, capacity)
        self._k_scopes = torch.full(size, PUBLIC, dtype=torch.int64, device=self._device)
        self._k_lasts = torch.full(size, EVERYBODY, dtype=torch.int64, device=self._device)
        self._k_positions = torch.full(size, UNSEEN, dtype=torch.int64, device=self._device)

    @classmethod
    def for_prompts(
        cls,
        pool: CachePool,
        prefixes: Sequence[PrefixCache | None],
        num_own_tokens: IntArray,
        room: int,
    ) -> CohortCache:
        """Create the cache of prompts that have fed nothing yet.

        Args:
            prefixes: that of each prompt, or None.
            num_own_tokens: int64 [P]
        """
        return cls(pool, prefixes, np.zeros(len(prefixes), dtype=np.int64), int(num_own_tokens.max()), room)

    @classmethod
    def merge(cls, caches: Sequence[CohortCache], picked: Sequence[IntArray], order: IntArray) -> CohortCache:
        """Merge several caches into one and release them.

        Args:
            picked: the rows to keep, for each cache.
            order: int64 [P], where each row comes from: its number among all that are picked, cache by cache.
        """
        pairs = list(zip(caches, picked, strict=True))
        prefixes = [cache.prefixes[row] for cache, rows in pairs for row in rows]
        used = np.concatenate([cache.used[rows] for cache, rows in pairs])[order]
        room = max(cache._room for cache in caches)
        merged = cls(caches[0]._pool, [prefixes[row] for row in order], used, int(used.max()), room)
        places = np.split(np.argsort(order), np.cumsum([len(rows) for rows in picked])[:-1])
        for (cache, rows), place in zip(pairs, places, strict=True):
            merged._copy(cache, rows, place)
            cache.release()
        return merged

    def release(self) -> None:
        """Release the memory; the cache cannot be used any more."""
        self._pool.give_back(self._block)

    @property
    def _device(self) -> torch.device:
        return self._pool.shape.device

    @property
    def num_columns(self) -> int:
        """Number of columns in use, of the prompt that has the most."""
        return int(self.used.max())

    @property
    def num_slots(self) -> int:
        """Capacity of the block in tokens, with padding, without shared prefixes."""
        return self._k_positions.numel()

    def slots_for(self, num_more: IntArray | int) -> int:
        """Return `num_slots` as it is with `num_more` more columns in use ([P], or one number for all prompts)."""
        widest = int((self.used + num_more).max())
        return max(self.num_slots, len(self.used) * self._pool.order.room_for(widest))

    def append(self, tokens: NewTokens, start: int, kept: IntArray, *, is_prefill: bool = False) -> AttentionPlan:
        """Give each new token a column, and return where the attention stores and finds keys and values.

        Args:
            start: where the cohort's stretch of the packed row begins.
            kept: rows whose content is still needed, if the block has to grow.
            is_prefill: whether the tokens are the prompts' own; not used here.
        """
        columns = self.used[tokens.prompts] + tokens.ranks
        counts = np.bincount(tokens.prompts, minlength=len(self.used))
        self.used = self.used + counts
        capacity = self._k_positions.shape[1]
        if self.num_columns > capacity:  # by some columns only: most values have ended, few need them
            self._move(kept, kept, max(self.num_columns, capacity + capacity // 4, capacity + self._room))

        num_rows = int(tokens.ranks.max()) + 1
        shape = (len(self.used), num_rows)
        flat = tokens.prompts * num_rows + tokens.ranks
        q_scopes = np.full(shape[0] * shape[1], PUBLIC, dtype=np.int64)
        q_sights = np.zeros_like(q_scopes)
        q_scopes[flat], q_sights[flat] = tokens.scopes, tokens.sights
        put = partial(to_device, device=self._device)
        kv_prompts, kv_columns = put(np.ascontiguousarray(tokens.prompts)), put(columns)
        self._k_scopes[kv_prompts, kv_columns] = put(tokens.scopes)
        self._k_lasts[kv_prompts, kv_columns] = put(tokens.lasts)
        self._k_positions[kv_prompts, kv_columns] = put(tokens.positions)
        return AttentionPlan(
            start=start,
            stop=start + len(tokens.token_ids),
            counts=counts,
            used=self.used,
            kv_prompts=kv_prompts,
            kv_columns=kv_columns,
            q_scopes=put(q_scopes).view(shape),
            q_sights=put(q_sights).view(shape),
            k_scopes=self._k_scopes[:, : self.num_columns],
            k_lasts=self._k_lasts[:, : self.num_columns],
            k_positions=self._k_positions[:, : self.num_columns],
            keys=self._block.keys,
            values=self._block.values,
            groups=prompt_groups(self.prefixes),
        )

    def reject(self, plan: AttentionPlan, wrong: npt.NDArray[np.bool_]) -> None:
        """Hide rejected tokens. Those at a prompt's end free their columns for the next step.

        Args:
            plan: that of this step, the last one.
            wrong: bool [t], whether each of its tokens is rejected.
        """
        rejected = to_device(np.nonzero(wrong)[0], self._device)
        # No token may see their columns from now on.
        unseen = torch.full_like(rejected, UNSEEN)  # a Python number would be copied to a GPU, and waited for
        self._k_positions[plan.kv_prompts[rejected], plan.kv_columns[rejected]] = unseen
        prompts = np.repeat(np.arange(len(plan.counts)), plan.counts)
        self.used = self.used - plan.counts + counts_without_last(prompts, wrong, len(plan.counts))

    def keep(self, rows: IntArray) -> None:
        """Keep only these rows, in a new block."""
        self.prefixes = [self.prefixes[row] for row in rows]
        self.used = self.used[rows]
        capacity = self._k_positions.shape[1]
        self._move(rows, np.arange(len(rows)), min(self.num_columns + self._room, capacity))

    def _move(self, picked: IntArray, rows: IntArray, num_columns: int) -> None:
        """Move the rows `picked` to `rows` of a new block; those that are not picked are lost."""
        old = copy(self)
        self._allocate(num_columns)
        self._copy(old, picked, rows)
        old.release()

    def _copy(self, source: CohortCache, picked: IntArray, rows: IntArray) -> None:
        """Copy the used columns of the rows `picked` of another cache into `rows`."""
        num_columns = min(source._k_positions.shape[1], self._k_positions.shape[1])
        self._block.copy_prompts(rows, source._block, picked, np.minimum(self.used[rows], num_columns))
        to, from_ = to_device(rows, self._device), to_device(picked, self._device)
        self._k_scopes[to, :num_columns] = source._k_scopes[from_, :num_columns]
        self._k_lasts[to, :num_columns] = source._k_lasts[from_, :num_columns]
        self._k_positions[to, :num_columns] = source._k_positions[from_, :num_columns]

    def prefix_caches(self) -> list[PrefixCache]:
        """Return each prompt's keys and values, after those that it attends to, in memory of their own.

        Call it for prompts that are bare prefixes, or shared texts that follow one."""
        return [
            PrefixCache(*self._block.copy_of_prompt(row, length, (prefix.keys, prefix.values) if prefix else None))
            for row, (length, prefix) in enumerate(zip(self.used.tolist(), self.prefixes, strict=True))
        ]


def side_by_side(prefixes: Sequence[PrefixCache | None], lengths: Sequence[int] | IntArray) -> IntArray:
    """Return the order of rows, int64 [P], with equal prefixes side by side, and those of one prefix by length.

    By length, because neighbours share tiles of the attention, which are padded to the longest.
    """
    numbers: dict[PrefixCache | None, int] = {}
    ranks = [numbers.setdefault(prefix, len(numbers)) for prefix in prefixes]
    return np.lexsort((np.asarray(lengths), np.array(ranks)))


def prompt_groups(prefixes: Sequence[PrefixCache | None]) -> list[PromptGroup]:
    """Group neighbouring prompts of the same prefix."""
    starts = [row for row in range(len(prefixes)) if row == 0 or prefixes[row] is not prefixes[row - 1]]
    stops = [*starts[1:], len(prefixes)]
    return [PromptGroup(start, stop, prefixes[start]) for start, stop in zip(starts, stops, strict=True)]
