"""Scenarios computed from a forecast: deadlines, and the sensitivity of the price.

Everything here is arithmetic on a forecast, without new measurements. Assumptions are stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pipelines.costing.forecast import Forecast, Interval

DEADLINES = (1.0, 2.0, 4.0, 8.0, 24.0)
"""Deadlines of the table, in hours."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Engines and nodes needed to meet a deadline.

    Attributes:
        hours: deadline in hours from the first engine's start.
        engines: engines needed at the estimate; None if no number of engines is enough.
        engines_safe: engines needed at the upper limit of the work's interval.
        nodes: nodes that hold `engines`.
        usd: cost of these whole nodes for as long as the engines run; None without a price.
    """

    hours: float
    engines: int | None
    engines_safe: int | None
    nodes: int | None
    usd: Interval | None


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Engine hours and dollars of the run with one change."""

    what: str
    change: str
    hours: float
    usd: float | None


def deadlines(forecast: Forecast, hours: Sequence[float] = DEADLINES) -> list[Deadline]:
    """Compute the engines and nodes that each deadline needs, with work spread evenly over the engines.

    For a cascade, call it with each of `Forecast.models`, since each model must meet the deadline.
    """
    return [_deadline(forecast, each) for each in hours]


def _deadline(forecast: Forecast, hours: float) -> Deadline:
    # Every engine loads, and computes every prefix, on its own: only the rest of its time is for products.
    fixed = forecast.load_seconds / 3600 + forecast.prefix_hours / forecast.utilisation
    left = hours - fixed

    def engines(work_hours: float) -> int | None:
        return None if left <= 0 else max(1, math.ceil(work_hours / forecast.utilisation / left - 1e-9))

    needed = engines(forecast.work_hours.estimate)
    if needed is None:
        return Deadline(hours, None, None, None, None)
    per_node, price = forecast.price.engines_per_node, forecast.price.usd_per_hour
    nodes = math.ceil(needed / per_node)
    wall = replace(forecast, engines=needed).wall_hours
    usd = None if price is None else wall.scaled(nodes * per_node * price)
    return Deadline(hours, needed, engines(forecast.work_hours.high), nodes, usd)


def sensitivity(forecast: Forecast) -> list[Sensitivity]:
    """Compute the forecast with one thing changed at a time."""
    return [
        Sensitivity(what, change, changed.billed_hours.estimate, None if changed.usd is None else changed.usd.estimate)
        for what, change, changed in _changes(forecast)
    ]


def _changes(forecast: Forecast) -> Iterator[tuple[str, str, Forecast]]:
    for share in (-0.2, 0.2):
        # Measured: by how much a longer text of the same category costs more.
        yield "text length", f"{share:+.0%}", _with_work(forecast, share, lambda each: each.bytes_effect)
    if any(map(_share_of_answers, forecast.models)):
        for share in (-0.25, 0.25):
            # A key's or value's token is taken to cost as much as another.
            yield "attributes", f"{share:+.0%}", _with_work(forecast, share, _share_of_answers)
    for utilisation in (0.99, 0.8, 0.6):
        changed = _changed(forecast, partial(replace, utilisation=utilisation))
        yield "engines compute", f"{utilisation:.0%} of the time", changed
    for share in (0.01, 0.05):
        yield "shards decoded twice", f"{share:.0%}", _with_work(forecast, share, lambda each: 1.0)
    if forecast.usd is not None:
        for factor in (0.5, 1.5):
            yield "price of an hour", f"{factor - 1:+.0%}", _changed(forecast, partial(_repriced, factor=factor))


def _changed(forecast: Forecast, change: Callable[[Forecast], Forecast]) -> Forecast:
    """Apply the same change to each of the forecast's models."""
    larger = None if forecast.larger is None else change(forecast.larger)
    return replace(change(forecast.alone), larger=larger, asked=forecast.asked)


def _share_of_answers(forecast: Forecast) -> float:
    total = sum(forecast.tokens.values())
    return 1 - forecast.tokens.get("document", 0.0) / total if total else 0.0


def _with_work(forecast: Forecast, share: float, effect: Callable[[Forecast], float]) -> Forecast:
    """Add `share` of the work, times each model's `effect`."""

    def change(each: Forecast) -> Forecast:
        return replace(each, work_hours=each.work_hours.scaled(max(0.0, 1 + share * effect(each))))

    return _changed(forecast, change)


def _repriced(forecast: Forecast, factor: float) -> Forecast:
    price = forecast.price
    usd = None if price.usd_per_hour is None else price.usd_per_hour * factor
    return replace(forecast, price=replace(price, usd_per_hour=usd))
