"""Prefill: the prompts' own tokens go into the cache, some columns of all prompts in each step.

A document that is read both ways goes in one step, however long it is: its first token sees its last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hpd_core.decoding.cohort_input import NewTokens
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import IntArray, Layout


class Prefill:
    """Own tokens of P prompts, [P, longest], and how many columns of them have been fed."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        """Start with nothing fed."""
        self.num_fed = 0
        self._lengths = np.array([prompt.num_own_tokens for prompt in prompts], dtype=np.int64)
        self._token_ids = self._padded(prompts, lambda layout: layout.token_ids)
        self._positions = self._padded(prompts, lambda layout: layout.positions)
        self._scopes = self._padded(prompts, lambda layout: layout.scopes)
        self._lasts = self._padded(prompts, lambda layout: layout.lasts)
        self._sights = self._padded(prompts, lambda layout: layout.sights)
        documents = [len(prompt.document_ids) for prompt in prompts if prompt.layout.reads_both_ways]
        self._least_columns = max(documents, default=0)

    def _padded(self, prompts: Sequence[Prompt], pick: Callable[[Layout], IntArray]) -> IntArray:
        padded = np.zeros((len(prompts), int(self._lengths.max())), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            padded[row, : prompt.num_own_tokens] = pick(prompt.layout)[prompt.num_tokens_before :]
        return padded

    @property
    def num_left(self) -> IntArray:
        """Number of tokens of each prompt that have not been fed, int64 [P]."""
        return np.maximum(self._lengths - self.num_fed, 0)

    def feed(self, max_tokens: int) -> NewTokens:
        """Return the next columns: at most `max_tokens` tokens, but at least one column and whole two-way documents."""
        first, width = self.num_fed, self._token_ids.shape[1]
        per_column = (self._lengths[:, None] > np.arange(first, width)).sum(axis=0)
        num_columns = max(1, int(np.searchsorted(np.cumsum(per_column), max_tokens, side="right")))
        self.num_fed = min(max(first + num_columns, self._least_columns), width)
        prompts, ranks = np.nonzero(self._lengths[:, None] > np.arange(first, self.num_fed))
        at = prompts, first + ranks
        placed = self._token_ids[at], self._positions[at], self._sights[at]
        return NewTokens(*placed, self._scopes[at], self._lasts[at], prompts, ranks)
