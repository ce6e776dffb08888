"""The KV cache of one cohort for an attention that finds every prompt by its address: a slot for each.

It replaces cohort_cache.py there. Rows are slots, so they are added, removed and merged without a copy. A step copies
only numbers to the device, in the tables of all cohorts (attention/step_tables.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from hpd_core.attention.kv_cache import CachePool, CacheSlot
from hpd_core.attention.plan import AddressedPlan, PrefixCache
from hpd_core.decoding.cohort_cache import NewTokens, counts_without_last
from hpd_core.layout import PUBLIC, IntArray


class AddressedCache:
    """Keys and values of P prompts.

    Attributes:
        prefixes: the prefix of each prompt that it attends to in place, or None.
        used: int64 [P], each prompt's columns in use.
    """

    def __init__(
        self,
        pool: CachePool,
        prefixes: Sequence[PrefixCache | None],
        slots: Sequence[CacheSlot],
        used: IntArray,
        leading: LeadingColumns,
        hidden: Sequence[IntArray],
    ) -> None:
        """Build from parts whose rows are the prompts; `hidden`: columns that the next step hides."""
        self.pool = pool
        self.prefixes, self.used = list(prefixes), used
        self._slots, self._leading, self._hidden = list(slots), leading, list(hidden)

    @classmethod
    def for_prompts(
        cls, pool: CachePool, prefixes: Sequence[PrefixCache | None], num_columns: IntArray
    ) -> AddressedCache:
        """Create the cache of prompts that have fed nothing yet.

        Args:
            num_columns: int64 [P], the columns that are reserved for each.
        """
        slots = [pool.take_slot(pool.order.room_for(columns)) for columns in num_columns.tolist()]
        count = len(slots)
        return cls(
            pool, prefixes, slots, np.zeros(count, dtype=np.int64), LeadingColumns.of_prompts(count), _none(count)
        )

    @classmethod
    def merge(cls, caches: Sequence[AddressedCache], picked: Sequence[IntArray], order: IntArray) -> AddressedCache:
        """Merge several caches into one and release the rows that are not picked.

        Args:
            picked: the rows to keep, for each cache.
            order: int64 [P], where each row comes from: its number among all that are picked, cache by cache.
        """
        for cache, rows in zip(caches, picked, strict=True):
            cache.keep(rows)
        slots = [slot for cache in caches for slot in cache._slots]
        prefixes = [prefix for cache in caches for prefix in cache.prefixes]
        hidden = [columns for cache in caches for columns in cache._hidden]
        return cls(
            caches[0].pool,
            [prefixes[row] for row in order],
            [slots[row] for row in order],
            np.concatenate([cache.used for cache in caches])[order],
            LeadingColumns.merge([cache._leading for cache in caches]).rows(order),
            [hidden[row] for row in order],
        )

    def release(self) -> None:
        """Release the memory; the cache cannot be used any more."""
        self._give_back(self._slots)
        self._slots = []

    def keep(self, rows: IntArray) -> None:
        """Keep only these rows, in this order."""
        kept = set(rows.tolist())
        self._give_back([slot for row, slot in enumerate(self._slots) if row not in kept])
        self._slots = [self._slots[row] for row in rows]
        self.prefixes = [self.prefixes[row] for row in rows]
        self._hidden = [self._hidden[row] for row in rows]
        self.used = self.used[rows]
        self._leading = self._leading.rows(rows)

    def _give_back(self, slots: Sequence[CacheSlot]) -> None:
        for slot in slots:
            self.pool.give_back(slot.memory)

    @property
    def num_columns(self) -> int:
        """Number of columns in use, of the prompt that has the most."""
        return int(self.used.max())

    def slots_for(self, num_more: IntArray | int) -> int:
        """Return the cache slots that it takes, without shared prefixes, with `num_more` more columns in use."""
        pairs = zip(self._slots, (self.used + num_more).tolist(), strict=True)
        return sum(self._capacity_for(slot, columns) for slot, columns in pairs)

    def _capacity_for(self, slot: CacheSlot, num_columns: int) -> int:
        """Return the capacity for so many columns: the slot's, or a larger one with an eighth to spare."""
        if num_columns <= slot.capacity:
            return slot.capacity
        return self.pool.order.room_for(num_columns + num_columns // 8)

    def append(self, tokens: NewTokens, start: int, kept: IntArray, *, is_prefill: bool = False) -> AddressedPlan:
        """Give each new token a column, and return where the attention stores and finds keys and values.

        Args:
            start: where the cohort's stretch of the packed row begins.
            kept: rows whose content is still needed.
            is_prefill: whether the tokens are the prompts' own.
        """
        columns = self.used[tokens.prompts] + tokens.ranks
        counts = np.bincount(tokens.prompts, minlength=len(self.used))
        self._reserve(self.used + counts)
        self.used = self.used + counts
        self._leading = self._leading.with_tokens(tokens, columns)
        hidden, self._hidden = self._hidden, _none(len(self.used))
        return AddressedPlan(
            start=start,
            stop=start + len(tokens.token_ids),
            counts=counts,
            used=self.used,
            prompts=tokens.prompts,
            columns=columns,
            scopes=tokens.scopes,
            lasts=tokens.lasts,
            positions=tokens.positions,
            sights=tokens.sights,
            num_leading=self._leading.counts,
            leading_positions=self._leading.positions,
            leads_only=self._leading.are_all,
            is_prefill=is_prefill,
            slots=list(self._slots),
            hidden_prompts=np.repeat(np.arange(len(hidden)), [len(columns) for columns in hidden]),
            hidden_columns=np.concatenate(hidden),
            prefixes=self.prefixes,
        )

    def _reserve(self, num_columns: IntArray) -> None:
        """Grow slots that are too small: values may be longer than usual, and rejected nodes leave columns behind."""
        for row, columns in enumerate(num_columns.tolist()):
            slot = self._slots[row]
            if columns > slot.capacity:
                self._slots[row] = self.pool.take_slot(self._capacity_for(slot, columns))
                slot.copy_to(self._slots[row], int(self.used[row]))
                self.pool.give_back(slot.memory)

    def reject(self, plan: AddressedPlan, wrong: npt.NDArray[np.bool_]) -> None:
        """Hide rejected tokens. Those at a prompt's end free their columns for the next step.

        Args:
            plan: that of this step, the last one.
            wrong: bool [t], whether each of its tokens is rejected.
        """
        prompts = plan.prompts
        self.used = self.used - plan.counts + counts_without_last(prompts, wrong, len(plan.counts))
        is_hole = wrong & (plan.columns < self.used[prompts])
        for row in np.unique(prompts[is_hole]).tolist():
            self._hidden[row] = np.concatenate([self._hidden[row], plan.columns[is_hole & (prompts == row)]])

    def prefix_caches(self) -> list[PrefixCache]:
        """Return each prompt's keys and values, after those that it attends to, in memory of their own.

        Call it for prompts that are bare prefixes, or shared texts that follow one."""
        return [self._prefix_cache(*each) for each in zip(self._slots, self.used.tolist(), self.prefixes, strict=True)]

    def _prefix_cache(self, slot: CacheSlot, used: int, before: PrefixCache | None) -> PrefixCache:
        keys, values = slot.keys[:, :, :used], slot.values[:, :, :used]
        if before is not None:
            keys, values = (
                torch.cat([torch.stack(list(first)), own], dim=2)
                for first, own in ((before.keys, keys), (before.values, values))
            )
        return PrefixCache(list(keys.contiguous()), list(values.contiguous()))


def _none(count: int) -> list[IntArray]:
    return [np.zeros(0, dtype=np.int64)] * count


@dataclass(frozen=True, slots=True)
class LeadingColumns:
    """The first columns of P prompts that are public and at consecutive positions: the document.

    Attributes:
        counts: int64 [P], their number.
        positions: int64 [P], the position of column 0.
        are_all: bool [P], whether no other column is public.
    """

    counts: IntArray
    positions: IntArray
    are_all: npt.NDArray[np.bool_]

    @classmethod
    def of_prompts(cls, num_prompts: int) -> LeadingColumns:
        """Create those of prompts that have no columns yet."""
        zeros = np.zeros(num_prompts, dtype=np.int64)
        return cls(zeros, zeros, np.ones(num_prompts, dtype=bool))

    @classmethod
    def merge(cls, parts: Sequence[LeadingColumns]) -> LeadingColumns:
        """Concatenate the prompts of all parts."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def rows(self, picked: IntArray) -> LeadingColumns:
        """Select prompts, in the order of `picked`."""
        return LeadingColumns(self.counts[picked], self.positions[picked], self.are_all[picked])

    def with_tokens(self, tokens: NewTokens, columns: IntArray) -> LeadingColumns:
        """Return the leading columns after these tokens are stored."""
        of, is_public = tokens.prompts, tokens.scopes == PUBLIC
        positions = self.positions.copy()
        is_first = columns == 0
        positions[of[is_first]] = tokens.positions[is_first]
        is_next = (tokens.positions == positions[of] + columns) & (columns == self.counts[of] + tokens.ranks)
        goes_on = is_public & is_next
        # The first token of each prompt that does not go on.
        length = np.bincount(of, minlength=len(self.counts))
        np.minimum.at(length, of[~goes_on], tokens.ranks[~goes_on])
        counts = self.counts + length
        are_all = self.are_all.copy()
        are_all[of[is_public & (columns >= counts[of])]] = False
        return LeadingColumns(counts, positions, are_all)
