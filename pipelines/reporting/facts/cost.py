"""What the engines' time and the money went to. Seconds are the engines', dollars are of `billed` seconds."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.store.totals import loading_note, retries_text


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Where the engines' seconds went: billed = load + busy + retry + rest.

    Attributes:
        busy: computing what was committed.
        prefix: of `busy`, the categories' prefixes; None for a run that did not count them.
        retry: in tries that failed; None for a run that did not count them.
        rest: waiting for a shard, starting up, and what was lost when an engine died. (The table's `idle_seconds` is
            a part of it: engines without any shard between two.)
    """

    billed: float
    load: float
    busy: float
    prefix: float | None
    retry: float | None
    rest: float

    @property
    def overhead(self) -> float:
        """All that is not work."""
        return self.billed - self.busy

    @property
    def loading_note(self) -> str:
        """Why a product of a larger run may cost less; empty where loading is a small part."""
        return loading_note(self.load, self.billed)


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars of the shards that have a price: billed = useful + load + retry + rest, each shard at its own price.

    Attributes:
        useful: for computing; `load`, `retry`, `rest` as in `EngineTime`.
        priced_afterwards: the price is the reader's (`--usd-per-hour`), not the run's.
        usd_per_hour: of an engine; the mean over billed hours where engines had different prices.
        sources: where the prices are from.
        shards, decoded: that have a price.
    """

    billed: float
    useful: float
    load: float
    retry: float | None
    rest: float
    usd_per_hour: float | None
    priced_afterwards: bool
    sources: tuple[str, ...]
    shards: int
    decoded: int

    @property
    def overhead(self) -> float:
        """Paid for loading, waiting and failed tries."""
        return self.billed - self.useful

    @property
    def per_1k(self) -> float | None:
        """For a thousand decoded products."""
        return self.billed / self.decoded * 1000 if self.decoded else None


@dataclass(frozen=True, slots=True)
class Account:
    """What the shards' metrics add up to.

    Attributes:
        shards, rows: that have metrics; `missing`: committed shards that have none.
        wall_seconds: with at least one engine alive or one shard under way; pauses between sessions are left out.
        engines: how many there were, one after the other or at once.
        engines_per_node: that fit on one machine; None if no engine said which part of its machine it had.
        tokens: by kind.
        retries: tries of shards beyond the first, of `retried_shards`.
        bytes_read, bytes_written: as stored; None for a run that did not count them.
        progress: (seconds since the first start, products so far), at most some hundred points.
    """

    shards: int
    missing: int
    rows: int
    time: EngineTime
    money: Money | None
    wall_seconds: float
    started_at: datetime.datetime
    ended_at: datetime.datetime
    engines: int
    engines_per_node: int | None
    decoded: int
    tokens: Mapping[str, int]
    num_steps: int
    retries: int
    retried_shards: int
    bytes_read: int | None
    bytes_written: int | None
    progress: tuple[tuple[float, int], ...]

    @property
    def tried_again(self) -> str:
        """How often, in words."""
        return retries_text(self.retries, self.retried_shards)

    @property
    def products_per_second(self) -> float | None:
        """Decoded products by wall seconds; None if shards are missing, whose time is in the wall of the others."""
        return self.decoded / self.wall_seconds if self.wall_seconds > 0 and not self.missing else None

    @property
    def products_per_engine_second(self) -> float | None:
        """Decoded products by billed seconds of an engine."""
        return self.decoded / self.time.billed if self.time.billed > 0 else None

    @property
    def mean_engines(self) -> float | None:
        """How many engines lived at a time, on average; None if shards are missing."""
        return self.time.billed / self.wall_seconds if self.wall_seconds > 0 and not self.missing else None
