"""The KV cache of one cohort: a block of the pool, and who may see each of its columns.

Every prompt has a row of the block and appends to it in whatever order its tokens come; a column is the place of one
token. The scopes and the position kept beside each column say who sees it (hpd_core/layout.py), so nothing is ever
moved within a row: a column that holds nothing, or a rejected node, has a position that nobody sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.attention.kv_cache import CachePool
from hpd_core.attention.plan import AttentionPlan, PrefixCache
from hpd_core.decoding.cohort_input import NewTokens, counts_without_last
from hpd_core.decoding.prefix_groups import prefix_lengths, prompt_groups
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray
from hpd_core.system.device import to_device

UNSEEN = 2**62
"""The position of a cache column that holds nothing: later than every token's, so that nobody sees it."""


class CohortCache:
    """Keys and values of P prompts, and for each column its first and last scope, and its position.

    Attributes:
        prefixes: of each prompt the prefix that it attends to where it is, if there is one.
        used: int64 [P], each prompt's columns in use. A new array with every change: plans keep the old one.
    """

    def __init__(
        self, pool: CachePool, prefixes: Sequence[PrefixCache | None], used: IntArray, num_columns: int, room: int
    ) -> None:
        """Takes memory for `num_columns` and `room`, the free columns worth having behind those in use."""
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
        share_prefixes: bool,
    ) -> CohortCache:
        """The cache of prompts that have fed nothing yet.

        Args:
            prefixes: of each prompt, or None.
            num_own_tokens: int64 [P]
            share_prefixes: attend to prefixes where they are. Else each row begins with a copy of its prefix, which
                cannot be where values lie in blocks.
        """
        copied = [None if share_prefixes else prefix for prefix in prefixes]
        if pool.order.block is not None and any(copied):
            raise ValueError("values in blocks: a prefix cannot be copied in front of others, only shared")
        shared = [prefix if share_prefixes else None for prefix in prefixes]
        used = prefix_lengths(copied)
        cache = cls(pool, shared, used, int((used + num_own_tokens).max()), room)
        cache._copy_prefixes(copied)
        return cache

    def _copy_prefixes(self, prefixes: Sequence[PrefixCache | None]) -> None:
        """Fills each prompt's first columns."""
        for group in prompt_groups(prefixes):
            if group.prefix is None:
                continue
            rows, length = slice(group.start, group.stop), group.prefix.num_tokens
            for block, source in ((self._block.keys, group.prefix.keys), (self._block.values, group.prefix.values)):
                for layer, tensor in enumerate(source):
                    block[layer][rows, :, :length] = tensor
            self._k_positions[rows, :length] = torch.arange(length, device=self._device)

    @classmethod
    def merge(cls, caches: Sequence[CohortCache], picked: Sequence[IntArray], order: IntArray) -> CohortCache:
        """One cache out of several, which are released.

        Args:
            picked: of each cache, the rows to take along.
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
        """Gives the memory back; the cache cannot be used any more."""
        self._pool.give_back(self._block)

    @property
    def _device(self) -> torch.device:
        return self._pool.shape.device

    @property
    def num_columns(self) -> int:
        """Columns in use, of the prompt that has the most."""
        return int(self.used.max())

    @property
    def num_slots(self) -> int:
        """Tokens that the block has room for, padding included; shared prefixes are not in it."""
        return self._k_positions.numel()

    def slots_for(self, num_more: IntArray | int) -> int:
        """The same when each prompt has so many more columns in use ([P], or alike for all)."""
        widest = int((self.used + num_more).max())
        return max(self.num_slots, len(self.used) * self._pool.order.room_for(widest))

    def append(self, tokens: NewTokens, start: int, kept: IntArray, *, is_prefill: bool = False) -> AttentionPlan:
        """Gives each new token a column, and says where the attention stores and finds what it needs.

        Args:
            start: where the cohort's stretch of the packed row begins.
            kept: rows whose content is still needed, if the block has to grow.
            is_prefill: the tokens are the prompts' own; here that makes no difference.
        """
        columns = self.used[tokens.prompts] + tokens.ranks
        counts = np.bincount(tokens.prompts, minlength=len(self.used))
        self.used = self.used + counts
        self._reserve(self.num_columns, kept)

        num_rows = int(tokens.ranks.max()) + 1
        shape = (len(self.used), num_rows)
        flat = tokens.prompts * num_rows + tokens.ranks
        rows = np.zeros(shape[0] * shape[1], dtype=np.int64)
        q_scopes = np.full_like(rows, PUBLIC)
        q_sights = np.zeros_like(rows)
        rows[flat], q_scopes[flat], q_sights[flat] = np.arange(len(flat)), tokens.scopes, tokens.sights
        device = self._device

        def put(array: IntArray) -> Tensor:
            return to_device(array, device)

        kv_prompts, kv_columns = put(np.ascontiguousarray(tokens.prompts)), put(columns)
        self._k_scopes[kv_prompts, kv_columns] = put(tokens.scopes)
        self._k_lasts[kv_prompts, kv_columns] = put(tokens.lasts)
        self._k_positions[kv_prompts, kv_columns] = put(tokens.positions)
        return AttentionPlan(
            start=start,
            stop=start + len(tokens.token_ids),
            counts=counts,
            used=self.used,
            rows=put(rows),
            unrows=put(flat),
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
        """Hides tokens that are of no use, and lets the next step have the last columns of this one as far as they hold
        such.

        Args:
            plan: of this step, the last one.
            wrong: bool [t], which of its tokens.
        """
        rejected = to_device(np.nonzero(wrong)[0], self._device)
        # Their columns hold what nobody wrote: nobody may see them from now on.
        unseen = torch.full_like(rejected, UNSEEN)  # a plain number would be copied to a GPU, and waited for
        self._k_positions[plan.kv_prompts[rejected], plan.kv_columns[rejected]] = unseen
        prompts = np.repeat(np.arange(len(plan.counts)), plan.counts)
        self.used = self.used - plan.counts + counts_without_last(prompts, wrong, len(plan.counts))

    def keep(self, rows: IntArray) -> None:
        """Goes on with some of the rows, in a block of their own."""
        self.prefixes = [self.prefixes[row] for row in rows]
        self.used = self.used[rows]
        capacity = self._k_positions.shape[1]
        self._move(rows, np.arange(len(rows)), min(self.num_columns + self._room, capacity))

    def _reserve(self, num_columns: int, kept: IntArray) -> None:
        """Grows the block by some columns when `num_columns` do not fit: most values have ended, few need them."""
        capacity = self._k_positions.shape[1]
        if num_columns > capacity:
            self._move(kept, kept, max(num_columns, capacity + capacity // 4, capacity + self._room))

    def _move(self, picked: IntArray, rows: IntArray, num_columns: int) -> None:
        """Takes the rows `picked` of the block to `rows` of a new one; what is not picked is lost."""
        old = copy(self)
        self._allocate(num_columns)
        self._copy(old, picked, rows)
        old.release()

    def _copy(self, source: CohortCache, picked: IntArray, rows: IntArray) -> None:
        """Into `rows`, what is in use of the rows of another cache that are `picked`."""
        num_columns = min(source._k_positions.shape[1], self._k_positions.shape[1])
        self._block.copy_prompts(rows, source._block, picked, np.minimum(self.used[rows], num_columns))
        to, from_ = to_device(rows, self._device), to_device(picked, self._device)
        self._k_scopes[to, :num_columns] = source._k_scopes[from_, :num_columns]
        self._k_lasts[to, :num_columns] = source._k_lasts[from_, :num_columns]
        self._k_positions[to, :num_columns] = source._k_positions[from_, :num_columns]

    def prefix_caches(self) -> list[PrefixCache]:
        """For prompts that are bare prefixes, or what follows one: the keys and values of each, with those of what it
        attends to in front, in memory of their own."""
        return [
            PrefixCache(*self._block.copy_of_prompt(row, length, (prefix.keys, prefix.values) if prefix else None))
            for row, (length, prefix) in enumerate(zip(self.used.tolist(), self.prefixes, strict=True))
        ]
