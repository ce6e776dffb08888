"""The cache of one cohort of a model that has layers beside attention: keys and values, and those layers' states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import AddressedPlan, AttentionPlan, PrefixCache
from hpd_core.decoding.addressed_cache import AddressedCache
from hpd_core.decoding.cohort_cache import CohortCache
from hpd_core.decoding.cohort_input import NewTokens
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import IntArray
from hpd_core.mixers.states import MixerCache, MixerShape, grown, window_of


@dataclass(frozen=True, slots=True)
class MixerRoom:
    """Memory that layers beside attention take, in slots of keys and values of the same size.

    Attributes:
        trunk: slots for the state of one prompt's or prefix's trunk.
        column: slots for one token of a branch.
        width: W, the number of columns that `trunk` includes.
    """

    trunk: int = 0
    column: int = 0
    width: int = 0

    @classmethod
    def of(cls, shapes: Sequence[MixerShape], attention: CacheShape) -> MixerRoom:
        """Compute it from the `shapes` of the layers beside attention; all 0 if there are none."""
        if not shapes:
            return cls()
        slot, width = slot_bytes(shapes, attention), window_of(shapes)
        column = sum(shape.bytes_per_column for shape in shapes)
        trunk = width * column + sum(shape.bytes_per_state for shape in shapes)
        return cls(-(-trunk // slot), -(-column // slot), width)

    def for_prompt(self, prompt: Prompt) -> int:
        """Return its slots if every value is as long as allowed and all nodes are fed that may be to choose some."""
        most = max(columns_for([prompt]), most_columns(prompt))
        return self.trunk + self.column * (grown(self.width + most) - self.width)


def slot_bytes(shapes: Sequence[MixerShape], attention: CacheShape) -> int:
    """Return the bytes of a token's keys and values; without any attention, of a branch's token in the other layers."""
    own = attention.numbers_per_token * attention.dtype.itemsize
    return own or max(1, sum(shape.bytes_per_column for shape in shapes))


def columns_for(prompts: Sequence[Prompt]) -> int:
    """Return a useful number of branch columns: values are short as a rule; longer ones grow the memory."""
    return max(prompt.layout.num_key_tokens + 4 * prompt.layout.num_branches for prompt in prompts)


def most_columns(prompt: Prompt) -> int:
    """Return the most columns that all of its branches may take, as `Prompt.most_own_tokens` counts them."""
    return prompt.layout.num_key_tokens + prompt.most_own_tokens - prompt.num_own_tokens


class HybridCache:
    """Cache with the interface of `CohortCache` and `AddressedCache`; rows are prompts."""

    def __init__(
        self, pool: CachePool, attention: CohortCache | AddressedCache, mixing: MixerCache, most: IntArray
    ) -> None:
        """Build from two parts with the same rows; `most`: int64 [P], the most columns of branches of each prompt."""
        self._pool, self._attention, self._mixing, self._most = pool, attention, mixing, most
        self._num_counted = self._num_bytes = 0
        self._count(mixing.num_bytes)

    @classmethod
    def around(
        cls,
        attention: CohortCache | AddressedCache,
        pool: CachePool,
        shapes: Sequence[MixerShape],
        prompts: Sequence[Prompt],
        prefixes: Sequence[PrefixCache | None],
    ) -> HybridCache:
        """Create the cache of prompts that have fed nothing yet.

        Args:
            attention: their keys and values.
            prefixes: that of each prompt, or None.
        """
        before = [prefix.mixing if prefix else None for prefix in prefixes]
        most = np.array([most_columns(prompt) for prompt in prompts], dtype=np.int64)
        mixing = MixerCache.for_prompts(shapes, before, columns_for(prompts))
        return cls(pool, attention, mixing, most)

    @classmethod
    def merge(cls, caches: Sequence[HybridCache], picked: Sequence[IntArray], order: IntArray) -> HybridCache:
        """Merge as `CohortCache.merge` does."""
        mixing = MixerCache.merge([cache._mixing for cache in caches], picked, order)
        for cache in caches:
            cache._count(0)
        most = np.concatenate([cache._most[rows] for cache, rows in zip(caches, picked, strict=True)])[order]
        parts = [cache._attention for cache in caches]
        attention = type(parts[0]).merge(parts, picked, order)  # type: ignore[arg-type]
        return cls(caches[0]._pool, attention, mixing, most)

    def _count(self, num_bytes: int) -> None:
        """Report the memory in use to the pool, which counts in numbers of its own dtype."""
        num_numbers = -(-num_bytes // self._pool.shape.dtype.itemsize)
        self._pool.num_used += num_numbers - self._num_counted
        self._num_counted, self._num_bytes = num_numbers, num_bytes

    @property
    def prefixes(self) -> list[PrefixCache | None]:
        """Prefixes, as in `CohortCache.prefixes`."""
        return self._attention.prefixes

    @property
    def used(self) -> IntArray:
        """Columns in use, as in `CohortCache.used`."""
        return self._attention.used

    @property
    def num_columns(self) -> int:
        """Number of columns in use, as in `CohortCache.num_columns`."""
        return self._attention.num_columns

    @property
    def num_slots(self) -> int:
        """Capacity in tokens, as if all memory were keys and values."""
        return self._attention.num_slots + self._mixing_slots(self._num_bytes)

    def slots_for(self, num_more: IntArray | int) -> int:
        """Return `num_slots` as it is with `num_more` more columns in use ([P], or one number for all prompts)."""
        # Some of them may be tokens of trunks, which take no column.
        num_bytes = self._mixing.bytes_for(np.minimum(self._mixing.used + num_more, self._most))
        return self._attention.slots_for(num_more) + self._mixing_slots(num_bytes)

    def _mixing_slots(self, num_bytes: int) -> int:
        return -(-num_bytes // slot_bytes(self._mixing.shapes, self._pool.shape))

    def append(
        self, tokens: NewTokens, start: int, kept: IntArray, *, is_prefill: bool = False
    ) -> AttentionPlan | AddressedPlan:
        """Append as `CohortCache.append` does."""
        plan = self._attention.append(tokens, start, kept, is_prefill=is_prefill)
        mixing = self._mixing.append(tokens.prompts, tokens.scopes, tokens.lasts, tokens.positions, start)
        self._count(self._mixing.num_bytes)
        return replace(plan, mixing=mixing)

    def reject(self, plan: AttentionPlan | AddressedPlan, wrong: npt.NDArray[np.bool_]) -> None:
        """Reject as `CohortCache.reject` does."""
        self._attention.reject(plan, wrong)  # type: ignore[arg-type]
        self._mixing.reject(wrong)

    def keep(self, rows: IntArray) -> None:
        """Keep only these rows, in this order."""
        self._attention.keep(rows)
        self._mixing.keep(rows)
        self._most = self._most[rows]
        self._count(self._mixing.num_bytes)

    def release(self) -> None:
        """Release the memory; the cache cannot be used any more."""
        self._attention.release()
        self._count(0)

    def prefix_caches(self) -> list[PrefixCache]:
        """Return what `CohortCache.prefix_caches` does, with the final states of the prompts' trunks."""
        pairs = zip(self._attention.prefix_caches(), self._mixing.trunk_states(), strict=True)
        return [replace(prefix, mixing=state) for prefix, state in pairs]
