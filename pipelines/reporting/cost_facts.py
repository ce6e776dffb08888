"""Breakdown of the engines' time and of the money. Seconds are engine seconds; dollars are for `billed` seconds."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.store.totals import loading_note, retries_text


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Engine seconds by use: billed = load + busy + retry + rest.

    Attributes:
        busy: seconds of computing what was committed.
        prefix: part of `busy` for the categories' prefixes; None if the run did not count them.
        retry: seconds in failed tries; None if the run did not count them.
        rest: seconds of waiting for a shard, starting up, and work lost when an engine died. Includes the table's
            `idle_seconds` (engines without any shard between two).
    """

    billed: float
    load: float
    busy: float
    prefix: float | None
    retry: float | None
    rest: float

    @property
    def overhead(self) -> float:
        """Billed seconds that are not `busy`."""
        return self.billed - self.busy

    @property
    def loading_note(self) -> str:
        """Note that a product of a larger run may cost less; empty if loading is a small part."""
        return loading_note(self.load, self.billed)


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars of the shards that have a price: billed = useful + load + retry + rest, each shard at its own price.

    Attributes:
        useful: dollars for computing; `load`, `retry`, `rest` as in `EngineTime`.
        priced_afterwards: whether the price comes from the reader (`--usd-per-hour`) instead of the run.
        usd_per_hour: price of an engine hour; the mean over billed hours if engines had different prices.
        sources: sources of the prices.
        shards, decoded: numbers of shards with a price and of products decoded in them.
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
        """Dollars for loading, waiting and failed tries."""
        return self.billed - self.useful

    @property
    def per_1k(self) -> float | None:
        """Dollars for a thousand decoded products."""
        return self.billed / self.decoded * 1000 if self.decoded else None


@dataclass(frozen=True, slots=True)
class Account:
    """Sums of the shards' metrics.

    Attributes:
        shards, rows: numbers of those that have metrics; `missing`: number of committed shards without metrics.
        wall_seconds: seconds with at least one engine alive or one shard in progress. Pauses between sessions do not
            count.
        engines: number of engines, one after the other or at once.
        engines_per_node: engines that fit on one machine; None if no engine reported its share of a machine.
        tokens: number of tokens by kind.
        retries: tries of shards beyond the first, of `retried_shards`.
        bytes_read, bytes_written: as stored; None if the run did not count them.
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

    @property
    def tried_again(self) -> str:
        """Number of retries, in words."""
        return retries_text(self.retries, self.retried_shards)

    @property
    def products_per_second(self) -> float | None:
        """Decoded products by wall seconds; None if shards lack metrics, because the wall time includes theirs."""
        return self.decoded / self.wall_seconds if self.wall_seconds > 0 and not self.missing else None

    @property
    def products_per_engine_second(self) -> float | None:
        """Decoded products by billed seconds of an engine."""
        return self.decoded / self.time.billed if self.time.billed > 0 else None

    @property
    def mean_engines(self) -> float | None:
        """Mean number of engines alive at a time; None if shards lack metrics."""
        return self.time.billed / self.wall_seconds if self.wall_seconds > 0 and not self.missing else None


@dataclass(frozen=True, slots=True)
class Expectation:
    """A forecast number with its 95% interval, and the actual number.

    Attributes:
        unit: usd or hours.
        is_inside: whether the interval holds the actual number. None if that is unknown, or is for other rows, another
            machine or only some of the shards.
    """

    what: str
    unit: str
    estimate: float
    low: float
    high: float
    actual: float | None
    is_inside: bool | None


@dataclass(frozen=True, slots=True)
class ForecastFacts:
    """The forecast, line by line, against the actual numbers.

    Attributes:
        is_comparable: whether the run finished exactly the forecast's rows on the forecast's machine, carried nothing
            over, and has the metrics (and prices, if any) of all shards.
    """

    place: str
    basis: str
    source: str
    created_at: str
    model: str
    device: str
    rows: int
    sampled: int
    num_batches: int
    is_comparable: bool
    lines: tuple[Expectation, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
