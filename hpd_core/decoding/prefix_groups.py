"""Prompts of one prefix stand side by side in a cohort, so that the attention reads the prefix once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpd_core.attention.plan import PrefixCache, PromptGroup
from hpd_core.layout import IntArray


def side_by_side(prefixes: Sequence[PrefixCache | None], lengths: Sequence[int] | IntArray) -> IntArray:
    """The order of rows, int64 [P], that has equal prefixes side by side, and those of one prefix by length.

    By length, because neighbours share tiles of the attention, which are padded to the longest.
    """
    numbers: dict[PrefixCache | None, int] = {}
    ranks = [numbers.setdefault(prefix, len(numbers)) for prefix in prefixes]
    return np.lexsort((np.asarray(lengths), np.array(ranks)))


def prompt_groups(prefixes: Sequence[PrefixCache | None]) -> list[PromptGroup]:
    """The prompts of these prefixes, cut where the prefix changes."""
    starts = [row for row in range(len(prefixes)) if row == 0 or prefixes[row] is not prefixes[row - 1]]
    stops = [*starts[1:], len(prefixes)]
    return [PromptGroup(start, stop, prefixes[start]) for start, stop in zip(starts, stops, strict=True)]


def prefix_lengths(prefixes: Sequence[PrefixCache | None]) -> IntArray:
    """int64 [P], in tokens; 0 where there is none."""
    return np.array([prefix.num_tokens if prefix else 0 for prefix in prefixes], dtype=np.int64)
