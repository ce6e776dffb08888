"""Grouping of a cohort's prompts by prefix, so that the attention reads a prefix once for all of its prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpd_core.attention.plan import PrefixCache, PromptGroup
from hpd_core.layout import IntArray


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


def prefix_lengths(prefixes: Sequence[PrefixCache | None]) -> IntArray:
    """Return the prefixes' lengths in tokens, int64 [P]; 0 if there is none."""
    return np.array([prefix.num_tokens if prefix else 0 for prefix in prefixes], dtype=np.int64)
