"""The forecast against the actual numbers, and estimates for other circumstances."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pipelines.cascading.curve import TOKEN_KINDS
from pipelines.costing.forecast import FORECAST_NAME, Forecast, Interval, Price, deadlines, sensitivity
from pipelines.costing.machines import gpu_table, is_same_gpu
from pipelines.errors import UsageError
from pipelines.reporting.cost_facts import Account, DeadlineFacts, Expectation, ForecastFacts, Outlook, SensitivityFacts
from pipelines.reporting.report_facts import ReportTotals
from pipelines.reporting.value_facts import CategoryFacts
from pipelines.runs.run import Run
from pipelines.store.folders import Folder
from pipelines.store.ledger import pilot_folder


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


def forecast_facts(
    forecast: Forecast,
    place: str,
    account: Account | None,
    categories: tuple[CategoryFacts, ...],
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
    by_name = {category.category: category for category in categories}
    return ForecastFacts(
        place=place,
        basis=forecast.basis,
        source=forecast.source,
        created_at=forecast.created_at,
        model=forecast.model,
        device=forecast.device,
        rows=forecast.rows,
        sampled=forecast.sampled,
        num_batches=forecast.num_batches,
        seed=forecast.seed,
        is_comparable=is_comparable,
        lines=tuple(_lines(forecast, account, totals, is_comparable)),
        categories=tuple(
            _expectation(each.category, "hours", each.hours, _hours_of(by_name.get(each.category)), is_comparable)
            for each in sorted(forecast.categories_of_all, key=lambda each: -each.hours.estimate)
        ),
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


def _hours_of(category: CategoryFacts | None) -> float | None:
    return None if category is None or category.engine_seconds is None else category.engine_seconds / 3600


def outlook(account: Account, totals: ReportTotals, forecast: Forecast | None) -> Outlook | None:
    """Estimate all planned rows in other circumstances, from this run's measurements; None if it has no work."""
    measured = _as_forecast(account, totals, forecast)
    if measured is None:
        return None
    basis = measured.billed_hours.estimate
    usd = measured.usd
    return Outlook(
        rows=measured.rows,
        hours=basis,
        usd=usd.estimate if usd is not None else None,
        engines_per_node=measured.price.engines_per_node,
        deadlines=tuple(
            DeadlineFacts(each.hours, each.engines, each.nodes, each.usd.estimate if each.usd is not None else None)
            for each in deadlines(measured)
        ),
        sensitivity=tuple(
            SensitivityFacts(each.what, each.change, each.hours, each.usd, _ratio(each.hours, each.usd, measured))
            for each in sensitivity(measured)
        ),
    )


def _ratio(hours: float, usd: float | None, measured: Forecast) -> float:
    """Return the relative increase, as a share: in dollars if known, because a price changes only them."""
    if usd is not None and measured.usd is not None and measured.usd.estimate:
        return usd / measured.usd.estimate - 1
    return hours / measured.billed_hours.estimate - 1


def _as_forecast(account: Account, totals: ReportTotals, forecast: Forecast | None) -> Forecast | None:
    """Express the run's own measurements as a forecast. Rows still to come are assumed to be like the others."""
    time, engines = account.time, max(1, account.engines)
    running = time.billed - time.load
    if not account.decoded or running <= 0 or time.busy <= 0 or not account.rows:
        return None
    # By the rows whose time is known: a shard without metrics has no part in what is scaled.
    growth = totals.planned_rows / account.rows
    work = (time.busy - (time.prefix or 0.0)) / 3600 * growth
    tokens = {kind: float(account.tokens[f"{kind}_tokens"]) for kind in TOKEN_KINDS}
    money = account.money
    # A pilot measures it; without one, a document's token is taken to cost as much as another.
    bytes_effect = tokens["document"] / max(1.0, sum(tokens.values()))
    return Forecast(
        basis="earlier run",
        source="",
        created_at="",
        model="",
        device="",
        rows=totals.planned_rows,
        dead_rows=0,
        sampled=account.decoded,
        num_batches=account.shards,
        seed=None,
        text_bytes=0.0,
        sampled_text_bytes=0.0,
        work_hours=Interval(work, work, work),
        prefix_hours=(time.prefix or 0.0) / 3600 / engines,
        load_seconds=time.load / engines,
        utilisation=time.busy / running,
        utilisation_source="measured",
        engines=engines,
        price=Price(
            money.usd_per_hour if money is not None else None,
            None,
            engines_per_node=account.engines_per_node or (1 if forecast is None else forecast.price.engines_per_node),
        ),
        categories=(),
        tokens=tokens,
        bytes_effect=forecast.bytes_effect if forecast is not None else bytes_effect,
    )
