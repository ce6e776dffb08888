"""The KV cache of one cohort: a block of the pool, and who may see each of its columns; and the tokens of a step.

Every prompt has a row of the block and appends to it in whatever order its tokens come; a column is the place of one
token. The scopes and the position kept for each column say who sees it (hpd_core/layout.py), so nothing is ever moved
within a row. An empty column, or that of a rejected node, has a position that no token sees.

Prompts are grouped by prefix, so that the attention reads a prefix once for all of its prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import AddressedPlan, AttentionPlan, PrefixCache, PromptGroup
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray
from hpd_core.mixers.states import MixerShape, grown, window_of
from hpd_core.system.device import to_device

UNSEEN = 2**62
"""Position of an empty cache column: later than every token's, so that none sees it."""


@dataclass(frozen=True, slots=True)
class NewTokens:
    """The t tokens that a cohort feeds, prompt by prompt.

    Attributes:
        token_ids, positions, sights, scopes, lasts: int64 [t]
        prompts: int64 [t], the row of the cohort that each belongs to; ascending.
        ranks: int64 [t], the tokens of one prompt numbered from 0.
    """

    token_ids: IntArray
    positions: IntArray
    sights: IntArray
    scopes: IntArray
    lasts: IntArray
    prompts: IntArray
    ranks: IntArray

    @classmethod
    def of_parts(cls, *parts: TokensInAnyOrder) -> tuple[NewTokens, IntArray]:
        """Merge parts, prompt by prompt and within each part by part. Return also their order."""
        order = np.argsort(np.concatenate([part.prompts for part in parts]), kind="stable")
        token_ids, positions, scopes, lasts, prompts = (
            np.concatenate([getattr(part, field.name) for part in parts])[order] for field in fields(TokensInAnyOrder)
        )
        return cls(token_ids, positions, positions, scopes, lasts, prompts, ranks_within(prompts)), order


@dataclass(frozen=True, slots=True)
class TokensInAnyOrder:
    """Tokens of values, not ordered by prompt: int64 [t] each, as `NewTokens` has them."""

    token_ids: IntArray
    positions: IntArray
    scopes: IntArray
    lasts: IntArray
    prompts: IntArray


@dataclass(frozen=True, slots=True)
class CohortInput:
    """Input of one cohort for one step: t tokens, n of which decode.

    Attributes:
        token_ids, positions: int64 [t]
        plan: for the attention.
        logit_rows: int64 [n], index into the t tokens, of those whose next token is wanted.
        states: int64 [n], the constraint state of each of them (text/constraints.py).
        nodes: int64 [n], the trie node whose ways are scored after each (text/member_tries.py), or NO_NODE.
        prompts: the cohort's P prompts as they were when the step began.
        tokens_per_prompt: int64 [P], each prompt's number of the t tokens.
        num_scored: number of the t tokens that are nodes of tries.
    """

    token_ids: IntArray
    positions: IntArray
    plan: AttentionPlan | AddressedPlan
    logit_rows: IntArray
    states: IntArray
    nodes: IntArray
    prompts: list[Prompt]
    tokens_per_prompt: IntArray
    num_scored: int


def ranks_within(groups: IntArray) -> IntArray:
    """Number the elements of each group from 0: [3, 3, 5, 5, 5] -> [0, 1, 0, 1, 2]. `groups` is ascending."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def counts_without_last(groups: IntArray, wrong: npt.NDArray[np.bool_], num_groups: int) -> IntArray:
    """Count each group's elements, without the wrong ones at its end: int64 [num_groups]. `groups` is ascending."""
    counts = np.zeros(num_groups, dtype=np.int64)
    np.maximum.at(counts, groups[~wrong], ranks_within(groups)[~wrong] + 1)
    return counts


class CohortCache:
    """Keys and values of P prompts, and for each column its first and last scope, and its position.

    Attributes:
        prefixes: the prefix of each prompt that it attends to in place, or None.
        used: int64 [P], each prompt's columns in use. A new array with every change: plans keep the old one.
    """

    def __init__(
        self, pool: CachePool, prefixes: Sequence[PrefixCache | None], used: IntArray, num_columns: int
    ) -> None:
        """Allocate `num_columns` for each prompt."""
        self.pool = pool
        self.prefixes, self.used = list(prefixes), used
        self._allocate(num_columns)

    def _allocate(self, num_columns: int) -> None:
        num_prompts, self._capacity = len(self.prefixes), self.pool.order.room_for(num_columns)
        self._block = self.pool.take(num_prompts, self._capacity)
        self._columns = torch.empty((3, num_prompts, self._capacity), dtype=torch.int64, device=self._device)
        for array, empty in zip(self._columns, (PUBLIC, EVERYBODY, UNSEEN), strict=True):
            array.fill_(empty)

    @classmethod
    def for_prompts(cls, pool: CachePool, prefixes: Sequence[PrefixCache | None], num_columns: IntArray) -> CohortCache:
        """Create the cache of prompts that have fed nothing yet.

        Args:
            prefixes: that of each prompt, or None.
            num_columns: int64 [P], the columns that are reserved for each.
        """
        return cls(pool, prefixes, np.zeros(len(prefixes), dtype=np.int64), int(num_columns.max()))

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
        num_columns = min(grown(int(used.max())), max(cache._capacity for cache in caches))
        merged = cls(caches[0].pool, [prefixes[row] for row in order], used, num_columns)
        places = np.split(np.argsort(order), np.cumsum([len(rows) for rows in picked])[:-1])
        for (cache, rows), place in zip(pairs, places, strict=True):
            merged._copy(cache, rows, place)
            cache.release()
        return merged

    def release(self) -> None:
        """Release the memory; the cache cannot be used any more."""
        self.pool.give_back(self._block.memory)

    @property
    def _device(self) -> torch.device:
        return self.pool.shape.device

    @property
    def num_columns(self) -> int:
        """Number of columns in use, of the prompt that has the most."""
        return int(self.used.max())

    def slots_for(self, num_more: IntArray | int) -> int:
        """Return the cache slots that it takes, with padding, without shared prefixes, with `num_more` more columns in
        use: int64 [P], or one number for all prompts.
        """
        widest = int((self.used + num_more).max())
        return len(self.used) * self.pool.order.room_for(self._capacity_for(widest))

    def _capacity_for(self, num_columns: int) -> int:
        """Return the capacity for so many columns: the present one, or a larger one with some to spare."""
        return self._capacity if num_columns <= self._capacity else max(num_columns, grown(self._capacity))

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
        if (capacity := self._capacity_for(self.num_columns)) > self._capacity:
            self._move(kept, kept, capacity)

        num_rows = int(tokens.ranks.max()) + 1
        shape = (len(self.used), num_rows)
        flat = tokens.prompts * num_rows + tokens.ranks
        q_scopes = np.full(shape[0] * shape[1], PUBLIC, dtype=np.int64)
        q_sights = np.zeros_like(q_scopes)
        q_scopes[flat], q_sights[flat] = tokens.scopes, tokens.sights
        put = partial(to_device, device=self._device)
        kv_prompts, kv_columns = put(np.ascontiguousarray(tokens.prompts)), put(columns)
        self._columns[:, kv_prompts, kv_columns] = put(np.stack([tokens.scopes, tokens.lasts, tokens.positions]))
        k_scopes, k_lasts, k_positions = self._columns[:, :, : self.num_columns]
        return AttentionPlan(
            start=start,
            stop=start + len(tokens.token_ids),
            counts=counts,
            used=self.used,
            kv_prompts=kv_prompts,
            kv_columns=kv_columns,
            q_scopes=put(q_scopes).view(shape),
            q_sights=put(q_sights).view(shape),
            k_scopes=k_scopes,
            k_lasts=k_lasts,
            k_positions=k_positions,
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
        _, _, positions = self._columns
        positions[plan.kv_prompts[rejected], plan.kv_columns[rejected]] = unseen
        prompts = np.repeat(np.arange(len(plan.counts)), plan.counts)
        self.used = self.used - plan.counts + counts_without_last(prompts, wrong, len(plan.counts))

    def keep(self, rows: IntArray) -> None:
        """Keep only these rows, in a new block."""
        self.prefixes = [self.prefixes[row] for row in rows]
        self.used = self.used[rows]
        self._move(rows, np.arange(len(rows)), min(grown(self.num_columns), self._capacity))

    def _move(self, picked: IntArray, rows: IntArray, num_columns: int) -> None:
        """Move the rows `picked` to `rows` of a new block; those that are not picked are lost."""
        old = copy(self)
        self._allocate(num_columns)
        self._copy(old, picked, rows)
        old.release()

    def _copy(self, source: CohortCache, picked: IntArray, rows: IntArray) -> None:
        """Copy the used columns of the rows `picked` of another cache into `rows`."""
        num_columns = min(source._capacity, self._capacity)
        self._block.copy_prompts(rows, source._block, picked, np.minimum(self.used[rows], num_columns))
        to, from_ = to_device(rows, self._device), to_device(picked, self._device)
        self._columns[:, to, :num_columns] = source._columns[:, from_, :num_columns]

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


@dataclass(frozen=True, slots=True)
class MixerRoom:
    """Memory that layers beside attention take, in slots of keys and values of the same size.

    Attributes:
        trunk: slots for the state of one prompt's or prefix's trunk.
        column: slots for one token of a branch.
    """

    trunk: int
    column: int

    @classmethod
    def of(cls, shapes: Sequence[MixerShape], attention: CacheShape) -> MixerRoom:
        """Compute it from the `shapes` of the layers beside attention; all 0 if there are none."""
        slot = slot_bytes(shapes, attention)
        column = sum(shape.bytes_per_column for shape in shapes)
        trunk = window_of(shapes) * column + sum(shape.bytes_per_state for shape in shapes)
        return cls(-(-trunk // slot), -(-column // slot))

    def for_prompt(self, prompt: Prompt) -> int:
        """Return the slots that are reserved for it."""
        return self.trunk + self.column * columns_for([prompt])


def slot_bytes(shapes: Sequence[MixerShape], attention: CacheShape) -> int:
    """Return the bytes of a token's keys and values; without any attention, of a branch's token in the other layers."""
    own = attention.numbers_per_token * attention.dtype.itemsize
    return own or max(1, sum(shape.bytes_per_column for shape in shapes))


def columns_for(prompts: Sequence[Prompt]) -> int:
    """Return the branch columns that each row needs: those of the prompt that reserves most."""
    return max(prompt.layout.num_key_tokens + prompt.reserved_tokens - prompt.num_own_tokens for prompt in prompts)


def most_columns(prompt: Prompt) -> int:
    """Return the most columns that all of its branches may take, as `Prompt.most_own_tokens` counts them."""
    return prompt.layout.num_key_tokens + prompt.most_own_tokens - prompt.num_own_tokens
