"""One prompt on its way through the decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpd_core.layout import IntArray, Layout
from hpd_core.text.leases import Lease
from hpd_core.text.runs import Runs


@dataclass(frozen=True, slots=True)
class MemberChoice:
    """How a value was chosen among members: `Verdicts` (decoding/member_search.py) of one."""

    is_sure: bool
    share: float
    margin: float


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """A value that has ended: what a `Prompt` says of branch number `branch` when all of its values have."""

    branch: int
    tokens: list[int]
    logprobs: list[float]
    closed: bool
    choice: MemberChoice | None

    @property
    def num_tokens(self) -> int:
        """The one that ends it included."""
        return len(self.logprobs)

    @property
    def logprob_mean(self) -> float | None:
        """Over its tokens; None if there are none."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else None

    @property
    def logprob_min(self) -> float | None:
        """Of its tokens; None if there are none."""
        return min(self.logprobs, default=None)

    @property
    def chosen(self) -> Literal["scored", "beam"] | None:
        """How it was chosen among members; None: it was decoded token by token."""
        if self.choice is None:
            return None
        return "scored" if self.choice.is_sure else "beam"

    @property
    def probability(self) -> float:
        """Its share among all that it could be, where it was chosen among them; else that of its tokens."""
        return math.exp(sum(self.logprobs)) if self.choice is None else self.choice.share

    @property
    def margin(self) -> float | None:
        """Of a scored value, in log probability above the next one."""
        return self.choice.margin if self.choice is not None and self.choice.is_sure else None


@dataclass(slots=True, eq=False)
class Prompt:
    """One prompt on its way through the decoder.

    Attributes:
        layout: its tokens; the first `layout.num_prefix_tokens` are the prefix named by `prefix_key`.
        prefix_key: equal keys mean equal prefixes.
        num_shared_tokens: so many tokens of the document are computed apart, once for all that begin so
            (shared_text.py); the scheduler decides it.
        owner: whatever the caller wants to find again when the prompt is finished.
        on_ended: told of each value as soon as it has ended, in the thread that makes the steps.
        told: the branches of which it was told.
        runs: by branch, the runs of the document that its value is chosen among: `RunTries.prepare` says in the layout
            what that means, before it is decoded.
        leases: of what stands in tables for its values; they end when it is finished.
        is_dropped: nobody waits for it any more: what is running of it ends as it is.
        tokens, logprobs: after it is finished, per branch: generated ids (the closing one last) and their
            log-probabilities. `closed[b]` is False where the value was cut at its limit.
        choices: likewise, per branch, what was chosen among members; None: decoded token by token.
        num_scored_tokens: likewise: what was fed to choose among members and is no part of an answer.
    """

    layout: Layout
    prefix_key: Any
    owner: Any = None
    num_shared_tokens: int = 0
    on_ended: Callable[[BranchEnd], None] | None = None
    told: set[int] = field(default_factory=set)
    runs: Mapping[int, Runs] = field(default_factory=dict)
    leases: list[Lease[Any]] = field(default_factory=list)
    is_dropped: bool = False
    tokens: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    choices: list[MemberChoice | None] = field(default_factory=list)
    num_scored_tokens: int = 0

    @property
    def ends(self) -> Iterator[BranchEnd]:
        """Its values, after it is finished."""
        columns: Iterable[Any] = zip(self.tokens, self.logprobs, self.closed, self.choices, strict=True)
        for branch, column in enumerate(columns):
            yield BranchEnd(branch, *column)

    @property
    def document_ids(self) -> IntArray:
        """The tokens between the prefix and the keys."""
        return self.layout.trunk[self.layout.num_prefix_tokens :]

    @property
    def is_finished(self) -> bool:
        """Whether its values are there."""
        return bool(self.tokens)

    @property
    def num_tokens_before(self) -> int:
        """Of the prefix, and of the document what is shared."""
        return self.layout.num_prefix_tokens + self.num_shared_tokens

    @property
    def num_own_tokens(self) -> int:
        """Tokens behind them."""
        return self.layout.num_tokens - self.num_tokens_before

    @property
    def most_own_tokens(self) -> int:
        """The same when every value is as long as it may be, and all is fed that may be to choose some."""
        return self.num_own_tokens + int(self.layout.fallbacks.sum() + self.layout.max_fed.sum())
