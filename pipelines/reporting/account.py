"""The account of a run, and the forecast against it."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.job.table_rows import TOKEN_METRICS
from pipelines.reporting.cost_facts import (
    Account,
    EngineTime,
    Expectation,
    ForecastFacts,
    Money,
)
from pipelines.reporting.forecast import FORECAST_NAME, Forecast, Interval
from pipelines.reporting.machines import gpu_table, is_same_gpu
from pipelines.reporting.report_facts import ReportTotals
from pipelines.store.folders import Folder
from pipelines.store.ledger import pilot_folder
from pipelines.store.run_tables import Parts
from pipelines.store.totals import sum_of_known


def find_forecast(uri: str, place: str | None) -> tuple[Forecast | None, str, list[str]]:
    """Find the forecast of the run in the folder `uri`. Returns it (or None), its path, and notes.

    Raises `UsageError` if the reader named a `place` and there is no forecast.
    """
    if place is not None:
        return Forecast.read(place), place, []
    folder = Folder(pilot_folder(uri))
    place = folder.describe(FORECAST_NAME)
    try:
        return (Forecast.read(place) if folder.exists(FORECAST_NAME) else None), place, []
    except (UsageError, OSError) as error:
        return None, place, [f"The forecast is left out: {error}."]


def priced(forecast: Forecast, usd_per_hour: float) -> Forecast:
    """Return the forecast at another price per engine hour."""
    larger = None if forecast.larger is None else priced(forecast.larger, usd_per_hour)
    price = dataclasses.replace(forecast.price, usd_per_hour=usd_per_hour)
    return dataclasses.replace(forecast, price=price, larger=larger)


_OF_FORECAST = ("basis", "source", "created_at", "model", "device", "rows", "sampled", "num_batches")


def forecast_facts(
    forecast: Forecast,
    place: str,
    account: Account | None,
    totals: ReportTotals,
    run: Run,
) -> ForecastFacts:
    """Compare the forecast of the run with its actual numbers."""
    notes = []
    if not run.is_finished:
        notes.append("The run is not finished: what came true is of the rows done so far.")
    elif totals.rows != forecast.rows:
        notes.append(f"The forecast is of {forecast.rows:,} rows, the run took {totals.rows:,}: compare by row.")
    is_same_device = run.device is None or _is_same_device(forecast.device, run.device)
    if not is_same_device:
        notes.append(f"The forecast is for {forecast.device}, the run was on {run.device}.")
    carried = run.status.totals.carried
    if any(carried.values()):
        products = carried["products"] + carried["products_in_part"]
        notes.append(
            f"{products:,} products were taken over from an earlier run, at least in part; the forecast has none."
        )
    is_complete = account is not None and not account.missing and _is_priced(account)
    if account is not None and not is_complete:
        notes.append("Some shards lack metrics or a price: what came true was more.")
    is_comparable = (
        run.is_finished
        and totals.rows == forecast.rows
        and is_same_device
        and not any(carried.values())
        and is_complete
    )
    return ForecastFacts(
        place=place,
        **{name: getattr(forecast, name) for name in _OF_FORECAST},
        is_comparable=is_comparable,
        lines=tuple(_lines(forecast, account, totals, is_comparable)),
        assumed=tuple(note for model in forecast.models for note in model.assumed),
        notes=tuple(notes),
    )


def _is_same_device(expected: str, actual: str) -> bool:
    """Return whether the devices are the same. A forecast for an unmeasured machine has a data-sheet name."""
    gpu = gpu_table().get(expected)
    return expected == actual or (gpu is not None and is_same_gpu(gpu.name, actual))


def _is_priced(account: Account) -> bool:
    """Return whether all shards have a price, or none."""
    return account.money is None or account.money.shards == account.shards


def _lines(
    forecast: Forecast, account: Account | None, totals: ReportTotals, is_comparable: bool
) -> Iterator[Expectation]:
    time = account.time if account is not None else None
    money = account.money if account is not None else None

    def line(what: str, unit: str, expected: Interval, actual: float | None) -> Expectation:
        return _expectation(what, unit, expected, actual, is_comparable)

    if forecast.usd is not None:
        yield line("Cost", "usd", forecast.usd, money.billed if money is not None else None)
    if forecast.usd_per_1k is not None:
        # By the rows that the forecast counts, too; some shards' dollars by all shards' rows would be too few.
        is_whole = money is not None and money.shards == totals.shards
        by_row = money.billed / totals.extractable * 1000 if money and is_whole and totals.extractable else None
        yield line("Cost of 1,000 rows that can be extracted", "usd", forecast.usd_per_1k, by_row)
    yield line("Engine hours", "hours", forecast.billed_hours, time.billed / 3600 if time else None)
    work = (time.busy - (time.prefix or 0.0)) / 3600 if time else None
    yield line("of them computing for products", "hours", forecast.computing_hours, work)
    yield line("Wall hours", "hours", forecast.wall_hours, account.wall_seconds / 3600 if account else None)


def _expectation(what: str, unit: str, expected: Interval, actual: float | None, is_comparable: bool) -> Expectation:
    is_inside = None if actual is None or not is_comparable else expected.contains(actual)
    return Expectation(what, unit, expected.estimate, expected.low, expected.high, actual, is_inside)


_COLUMNS = (
    *("shard", "pass", "started_at", "finished_at", "retries", "num_rows", "num_products", "num_carried", "num_steps"),
    *TOKEN_METRICS,
    *("billed_seconds", "load_seconds", "busy_seconds", "prefix_seconds", "retry_seconds", "bytes_read"),
    *("bytes_written", "device", "gpu_type", "instance_type", "market", "node_share", "actor_id", "price_per_hour"),
    *("price_source", "finish_seconds"),
)

Row = Mapping[str, Any]


@dataclass(slots=True)
class ShardTotals:
    """Facts about the shards beside the sums.

    Attributes:
        prices: price of an engine hour, by shard; only shards that have one.
        larger_prices: likewise, for the engines of a cascade's larger model.
    """

    devices: Counter[str] = field(default_factory=Counter)
    instances: Counter[str] = field(default_factory=Counter)
    prices: dict[int, float] = field(default_factory=dict)
    larger_prices: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_account(parts: Parts, usd_per_hour: float | None = None) -> tuple[Account | None, ShardTotals]:
    """Return the account of the committed shards (None if there are no metrics) and facts about the shards.

    Args:
        usd_per_hour: price of an engine hour for all shards; overrides the prices that the run found.
    """
    rows = [row for part in parts.read("metrics", _COLUMNS) for row in part.to_pylist()]
    totals = ShardTotals()
    shards = {row["shard"] for row in rows}
    missing = len(parts.shards) - len(shards)
    if missing:
        totals.notes.append(
            f"The metrics of {missing:,} of {len(parts.shards):,} shards are missing: time, tokens and dollars are of "
            "the others alone."
        )
    if not rows:
        return None, totals
    for row in rows:
        totals.devices[row["gpu_type"] or row["device"]] += 1
        if row["instance_type"]:
            market = f" ({row['market']})" if row["market"] else ""
            totals.instances[f"{row['instance_type']}{market}"] += 1
        if (price := row["price_per_hour"] if usd_per_hour is None else usd_per_hour) is not None:
            _prices(totals, row)[row["shard"]] = price
    if any(row["billed_seconds"] is None for row in rows):
        totals.notes.append(
            "Some shards do not say for how long their engine was held: their time is loading and computing alone."
        )
    unpriced = {row["shard"] for row in rows if row["shard"] not in _prices(totals, row)}
    if 0 < len(unpriced) < len(shards):
        totals.notes.append(
            f"{len(unpriced):,} of {len(shards):,} shards have no price: dollars are of the others alone."
        )
    account = Account(
        shards=len(shards),
        missing=missing,
        rows=sum(row["num_rows"] for row in rows),
        time=_engine_time([(row, 1.0) for row in rows]),
        money=_money(
            [row for row in rows if row["shard"] not in unpriced], totals, is_afterwards=usd_per_hour is not None
        ),
        wall_seconds=_covered([interval for row in rows for interval in _intervals(row)]),
        started_at=min(row["started_at"] for row in rows),
        ended_at=max(row["finished_at"] for row in rows),
        # A run without Ray has engines without names.
        engines=len({row["actor_id"] for row in rows}),
        engines_per_node=_engines_per_node(rows),
        decoded=sum(map(_decoded, rows)),
        tokens={name: sum(row[name] or 0 for row in rows) for name in TOKEN_METRICS},
        num_steps=sum(row["num_steps"] for row in rows),
        retries=sum(row["retries"] for row in rows),
        retried_shards=len({row["shard"] for row in rows if row["retries"]}),
        bytes_read=sum_of_known(row["bytes_read"] for row in rows),
        bytes_written=sum_of_known(row["bytes_written"] for row in rows),
    )
    return account, totals


def _engine_time(rows: Sequence[tuple[Row, float]]) -> EngineTime:
    """Sum the time by use, with every shard's seconds times a factor: 1, or its price per second for dollars."""

    def total(name: str) -> float | None:
        return sum_of_known(None if row[name] is None else row[name] * factor for row, factor in rows)

    load, busy, retry = total("load_seconds") or 0.0, total("busy_seconds") or 0.0, total("retry_seconds")
    # Shards overlap in an engine, so that a single one may have computed for longer than its bill is; a run has not.
    billed = max(sum(_billed(row) * factor for row, factor in rows), load + busy)
    if retry is not None:
        # While a try failed, others went on in the same engine: a second is not counted twice.
        retry = max(0.0, min(retry, billed - load - busy))
    rest = max(0.0, billed - load - busy - (retry or 0.0))
    return EngineTime(billed, load, busy, total("prefix_seconds"), retry, rest)


def _prices(totals: ShardTotals, row: Row) -> dict[int, float]:
    """Return the prices of the model that the row is about."""
    return totals.larger_prices if row["pass"] == 2 else totals.prices


def _money(rows: Sequence[Row], totals: ShardTotals, *, is_afterwards: bool) -> Money | None:
    """Sum the money of the rows that have a price; None if none has."""
    priced = [(row, _prices(totals, row)[row["shard"]]) for row in rows]
    if not priced:
        return None
    # Every shard's seconds at its own price: with a mean price, the parts would not be what was paid for them.
    dollars = _engine_time([(row, price / 3600) for row, price in priced])
    hours = _engine_time([(row, 1.0) for row, _ in priced]).billed / 3600
    sources = {row["price_source"] for row, _ in priced if row["price_source"]}
    return Money(
        billed=dollars.billed,
        useful=dollars.busy,
        load=dollars.load,
        retry=dollars.retry,
        rest=dollars.rest,
        usd_per_hour=dollars.billed / hours if hours else None,
        priced_afterwards=is_afterwards,
        sources=("--usd-per-hour",) if is_afterwards else tuple(sorted(sources)),
        shards=len({row["shard"] for row in rows}),
        decoded=sum(_decoded(row) for row, _ in priced),
    )


def _engines_per_node(rows: Sequence[Row]) -> int | None:
    """Return the engines per machine, for the machine of most shards; None if no engine reported its share of one."""
    shares = Counter(row["node_share"] for row in rows if row["node_share"])
    # A third of a machine may be written as 0.3333334.
    return max(1, int(1 / shares.most_common(1)[0][0] + 1e-3)) if shares else None


def _billed(row: Row) -> float:
    billed: float | None = row["billed_seconds"]
    return billed if billed is not None else row["load_seconds"] + row["busy_seconds"]


def _decoded(row: Row) -> int:
    return int(row["num_products"] - (row["num_carried"] or 0))


def _intervals(row: Row) -> Iterable[tuple[datetime.datetime, datetime.datetime]]:
    """Yield the interval in which the shard was in progress, and the interval of its billed engine time."""
    yield row["started_at"], row["finished_at"]
    # An engine is done with a shard before its tables are made.
    decoded = row["finished_at"] - datetime.timedelta(seconds=row["finish_seconds"])
    yield decoded - datetime.timedelta(seconds=_billed(row)), decoded


def _covered(intervals: Iterable[tuple[datetime.datetime, datetime.datetime]]) -> float:
    """Return the seconds that lie in at least one interval."""
    seconds, end = 0.0, None
    for start, stop in sorted(intervals):
        if end is None or start > end:
            seconds += (stop - start).total_seconds()
            end = stop
        elif stop > end:
            seconds += (stop - end).total_seconds()
            end = stop
    return seconds
