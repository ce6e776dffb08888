"""Cost and speed of a run as plain numbers, for a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.reporting.cost_account import read_account
from pipelines.runs.run import Run


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures for the compared shards. None means unknown. A price of zero is a price.

    Attributes:
        metered_shards: number of shards with metrics; time, tokens and dollars cover only these.
        values: number of answers that are values.
        decoded: products that the run decoded itself, at least in part; the others were carried over and cost nothing.
        wall_seconds: seconds with an engine alive or a shard in progress; without pauses between sessions.
        billed_seconds: engine seconds billed; busy_seconds: those spent computing; load_seconds: those spent loading.
        products_per_second: decoded products by wall seconds; products_per_engine_second: by billed seconds.
        tokens: number of tokens by kind.
        retries: tries of shards beyond the first, of `retried_shards`.
        hardware: GPU types (or "cpu") and instance types, if known.
        priced_shards: number of shards with a known price; dollars cover only these.
        usd_per_1k: dollars billed per 1,000 decoded products.
    """

    shards: int
    metered_shards: int
    products: int
    values: int
    decoded: int
    dead_letters: int
    wall_seconds: float | None
    billed_seconds: float | None
    busy_seconds: float | None
    load_seconds: float | None
    products_per_second: float | None
    products_per_engine_second: float | None
    tokens: Mapping[str, int]
    steps: int | None
    retries: int | None
    retried_shards: int | None
    hardware: tuple[str, ...]
    priced_shards: int
    usd_per_engine_hour: float | None
    usd_billed: float | None
    usd_useful: float | None
    usd_per_1k: float | None

    @property
    def is_metered(self) -> bool:
        """Whether sums of time, tokens and steps cover all shards."""
        return self.metered_shards == self.shards

    @property
    def is_priced(self) -> bool:
        """Whether sums of dollars cover all shards."""
        return self.priced_shards == self.shards


def read_figures(side: Run) -> tuple[Figures, list[str]]:
    """Return the figures, and notes on them. Raises `UsageError` if the metrics cannot be read."""
    account, machines = read_account(side.parts)
    totals = side.totals
    time, money = (account.time, account.money) if account is not None else (None, None)
    return Figures(
        shards=totals.shards,
        metered_shards=account.shards if account else 0,
        products=totals.products,
        values=totals.statuses["value"],
        decoded=totals.decoded,
        dead_letters=totals.dead_letters,
        wall_seconds=account.wall_seconds if account else None,
        billed_seconds=time.billed if time else None,
        busy_seconds=time.busy if time else None,
        load_seconds=time.load if time else None,
        products_per_second=account.products_per_second if account else None,
        products_per_engine_second=account.products_per_engine_second if account else None,
        tokens=account.tokens if account else {},
        steps=account.num_steps if account else None,
        retries=account.retries if account else None,
        retried_shards=account.retried_shards if account else None,
        hardware=(*machines.devices, *machines.instances),
        priced_shards=money.shards if money else 0,
        usd_per_engine_hour=money.usd_per_hour if money else None,
        usd_billed=money.billed if money else None,
        usd_useful=money.useful if money else None,
        usd_per_1k=money.per_1k if money else None,
    ), machines.notes
