"""A prompt in the decoder, and its values when they have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hpd_core.layout import IntArray, Layout
from hpd_core.system.leases import Lease
from hpd_core.text.runs import Runs

USUAL_COLUMNS = 4
"""Columns of the cache that are reserved for a value: most are shorter. Longer ones make its prompt's memory grow."""


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """A value that has ended: what a finished `Prompt` holds for branch number `branch`.

    Attributes:
        tokens, logprobs: generated ids (the closing one last) and their log-probabilities.
        closed: False if the value was cut at its limit.
        chosen: method by which it was chosen among members; None: it was decoded token by token.
        probability: share among all possible answers, if it was chosen among them; else the probability of its tokens.
        margin: log-probability of a scored value above that of the next one; None for others.
    """

    branch: int
    tokens: list[int]
    logprobs: list[float]
    closed: bool
    chosen: Literal["scored", "beam"] | None
    probability: float
    margin: float | None

    @property
    def num_tokens(self) -> int:
        """Number of tokens, including the one that ends it."""
        return len(self.logprobs)

    @property
    def logprob_mean(self) -> float | None:
        """Mean log-probability of its tokens; None if there are none."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else None

    @property
    def logprob_min(self) -> float | None:
        """Lowest log-probability of its tokens; None if there are none."""
        return min(self.logprobs, default=None)


@dataclass(frozen=True, slots=True)
class Slot:
    """Value that a branch decodes: number `branch` of trunk number `trunk` (of a record: an attribute's number)."""

    trunk: int
    branch: int


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt: what its branches are asked for, and in the decoder.

    Attributes:
        layout: its tokens; the first `layout.num_prefix_tokens` are the prefix named by `prefix_key`.
        prefix_key: equal keys mean equal prefixes.
        num_shared_tokens: number of the document's first tokens that are computed apart, once for all documents that
            begin with them (common_prefixes.py); the scheduler decides it.
        slots: per branch, the value that it decodes.
        twins: numbers of further trunks with the same text, which get the same values.
        owner: the request that it belongs to (requests/request_queue.py); the decoder does not look at it.
        seconds: its share of the time of the steps so far.
        runs: for each branch, the runs of the document that its value is chosen among. `RunTries.prepare` enters their
            members in the layout before it is decoded.
        leases: leases of its values' entries in tables; they end when it is finished.
        is_dropped: whether the caller gave it up: its running values end as they are.
        was_displaced: whether it lost its memory to others. It then reserves the most that it may need.
        ends: its values, after it is finished.
        num_scored_tokens: likewise: number of tokens fed to choose among members that are no part of an answer.
    """

    layout: Layout
    prefix_key: Any
    slots: Sequence[Slot] = ()
    twins: list[int] = field(default_factory=list)
    owner: Any = None
    seconds: float = 0.0
    num_shared_tokens: int = 0
    runs: Mapping[int, Runs] = field(default_factory=dict)
    leases: list[Lease[Any]] = field(default_factory=list)
    is_dropped: bool = False
    was_displaced: bool = False
    ends: list[BranchEnd] = field(default_factory=list)
    num_scored_tokens: int = 0

    @property
    def trunks(self) -> list[int]:
        """Numbers of the trunks whose values it decodes, each once."""
        return [*dict.fromkeys(slot.trunk for slot in self.slots), *self.twins]

    @property
    def tokens(self) -> list[list[int]]:
        """Generated ids of each value, after it is finished."""
        return [end.tokens for end in self.ends]

    @property
    def logprobs(self) -> list[list[float]]:
        """Their log-probabilities."""
        return [end.logprobs for end in self.ends]

    @property
    def document_ids(self) -> IntArray:
        """Token ids between the prefix and the keys."""
        return self.layout.trunk[self.layout.num_prefix_tokens :]

    @property
    def is_finished(self) -> bool:
        """Whether its values are there."""
        return bool(self.ends)

    @property
    def num_tokens_before(self) -> int:
        """Number of tokens of the prefix and of the document's shared part."""
        return self.layout.num_prefix_tokens + self.num_shared_tokens

    @property
    def num_own_tokens(self) -> int:
        """Number of tokens after those of `num_tokens_before`."""
        return self.layout.num_tokens - self.num_tokens_before

    @property
    def most_own_tokens(self) -> int:
        """Number of own tokens if values are as long as allowed and all nodes are fed that may be to choose some."""
        return self.num_own_tokens + int(self.layout.fallbacks.sum() + self.layout.max_fed.sum())

    @property
    def reserved_tokens(self) -> int:
        """Number of columns that are reserved for it: with values of usual length, or the most if it was displaced."""
        if self.was_displaced:
            return self.most_own_tokens
        return self.num_own_tokens + int(np.minimum(self.layout.fallbacks + self.layout.max_fed, USUAL_COLUMNS).sum())
