"""Text of a forecast, for people and as one JSON object for machines.

Backtest of the interval: repeated pilots on a catalog with a known cost of every row.

Nothing is decoded: each trial draws like a pilot, takes the known cost of its rows, and estimates the cost of all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from pipelines.console.progress import format_seconds
from pipelines.console.terminal import dollars, printable
from pipelines.job.prices import why_no_price
from pipelines.quality.curve import Cost, Curve, Point
from pipelines.reporting.forecast import Deadline, Forecast, Interval, deadlines, sensitivity
from pipelines.reporting.strata import MIN_ROWS, Measurements, draw_rows, estimate, make_strata
from pipelines.reporting.survey import CellCount, Survey, SurveyCell, row_number

_CATEGORIES_SHOWN = 20


def print_forecast(console: Console, forecast: Forecast, hours: Sequence[float], place: str) -> None:
    """Print the price, its parts, and what would change it."""

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    usd, per_1k, rows = forecast.usd, forecast.usd_per_1k, f"{forecast.rows:,} rows"
    if usd is not None and per_1k is not None:
        say(f"[bold]{_money(usd)}[/] for {rows}: {_money(per_1k)} per 1,000")
    else:
        say(f"[bold]{_duration(forecast.billed_hours)} of an engine[/] for {rows}; no price is known")
        say(f"  {escape(why_no_price(forecast.price.instance_type, forecast.price.market))}")
    engines = " + ".join(f"{each.engines:,}" for each in forecast.models)
    say(f"  time         {_duration(forecast.wall_hours)} with {engines} engine(s)")
    if (whole := forecast.usd_of_nodes) is not None:
        say(f"  nodes        {_money(whole)} as a whole: the engines do not fill them, and what is idle is paid, too")
    _print_model(console, forecast.alone)
    if forecast.larger is not None and forecast.asked is not None:
        asked = forecast.asked
        say(
            f"The larger model is asked again for {_interval(asked.answers, '{:.0%}'.format)} of the answers, those "
            f"below {asked.below:g}, of {asked.products:.0%} of the products:"
        )
        _print_model(console, forecast.larger)
    if forecast.dead_rows:
        say(f"  dead letters {forecast.dead_rows:,} rows cannot be extracted (no schema, no text): they cost nothing")
    for note in [note for each in forecast.models for note in each.assumed]:
        say(f"[bold yellow]Assumed:[/] {escape(note)}")
    for each in forecast.models:
        title = "Done in" if forecast.larger is None else f"{printable(each.model)} done in"
        _print_deadlines(console, title, deadlines(each, hours), has_price=each.usd is not None)
    _print_categories(console, forecast)
    _print_sensitivity(console, forecast)
    say(f"Forecast in {escape(place)}")


def _print_model(console: Console, forecast: Forecast) -> None:
    """Print the work of one model's engines, and its cost."""

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    say(f"  work         {_duration(forecast.work_hours)} of an engine")
    say(
        f"  fixed        {format_seconds(3600 * forecast.fixed_hours)} of an engine: loading, "
        f"{forecast.load_seconds:,.0f} s each, and prefixes"
    )
    say(
        f"  utilisation  {forecast.utilisation:.0%} of an engine's time after loading is computing "
        f"({forecast.utilisation_source})"
    )
    price = forecast.price
    if price.usd_per_hour is not None:
        machine = f"{price.instance_type}, {price.market}" if price.instance_type else "a machine"
        say(
            f"  price        {dollars(price.usd_per_hour)} an engine hour ({escape(machine)}, "
            f"{price.engines_per_node} engine(s) a node; {escape(price.source or 'unknown source')})"
        )
    if size := forecast.model_size:
        say(f"  memory       {_memory(size)}")
    say(f"  measured     {_sample(forecast)}")


def _memory(size: Mapping[str, int]) -> str:
    """Describe a model's memory. `size`: as in `EngineDescription`; an earlier run may lack some entries."""
    text = f"weights {decimal(size['weight_bytes'])}"
    if cached := size.get("cached_bytes"):
        text += f"; {decimal(cached)} a token in the KV cache"
    if column := size.get("column_bytes"):
        state = decimal(size["state_bytes"])
        text += f"; what layers beside attention keep: {state} a product under way, "
        text += f"{decimal(column)} a token of its values"
    return text


def _sample(forecast: Forecast) -> str:
    device = forecast.measured_on or forecast.device
    text = f"{forecast.sampled:,} products in {forecast.num_batches} batches on {device}, {forecast.model}"
    if forecast.seed is not None:
        text += f"; drawn by category and text length, seed {forecast.seed}"
    text += f"; text {forecast.text_bytes:,.0f} bytes a row"
    if forecast.sampled_text_bytes is not None and forecast.text_bytes:
        text += f", in the sample {forecast.sampled_text_bytes / forecast.text_bytes - 1:+.1%}"
    return escape(text)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    return table


def _print_deadlines(console: Console, title: str, found: Sequence[Deadline], *, has_price: bool) -> None:
    table = _table(title, "engines", "to be safe", "nodes", *(["cost"] if has_price else []))
    for each in found:
        cells = [f"{each.hours:g} h"]
        if each.engines is None:
            cells += ["too short to load", "", ""]
        else:
            cells += [f"{each.engines:,}", f"{each.engines_safe:,}", f"{each.nodes:,}"]
            cells += [_money(each.usd)] if each.usd is not None else []
        table.add_row(*cells)
    console.print(table)


def _print_categories(console: Console, forecast: Forecast) -> None:
    has_price = forecast.usd is not None
    table = _table("Category", "rows", "measured", "engine time", *(["cost"] if has_price else []))
    ordered = sorted(forecast.categories_of_all, key=lambda each: -each.hours.estimate)
    costs = _costs(forecast) if has_price else {}
    for each in ordered[:_CATEGORIES_SHOWN]:
        name = printable(each.category) + (" (with other rare ones)" if each.is_pooled else "")
        # The pool's interval says nothing about one of its categories.
        short = _bare if each.is_pooled else _short
        cells = [escape(name), f"{each.rows:,}", f"{each.sampled:,}", short(each.hours.scaled(3600), format_seconds)]
        cells += [short(costs[each.category], dollars)] if has_price else []
        table.add_row(*cells)
    console.print(table)
    if len(ordered) > _CATEGORIES_SHOWN:
        console.print(f"... and {len(ordered) - _CATEGORIES_SHOWN:,} more in the forecast's file", highlight=False)


def _costs(forecast: Forecast) -> dict[str, Interval]:
    """Return category -> dollars, summed over all models; a model without a price counts 0."""
    found: dict[str, Interval] = {}
    for model in forecast.models:
        price = (model.price.usd_per_hour or 0.0) / model.utilisation
        for each in model.categories:
            cost = each.hours.scaled(price)
            found[each.category] = found[each.category].plus(cost) if each.category in found else cost
    return found


def _print_sensitivity(console: Console, forecast: Forecast) -> None:
    base = forecast.billed_hours.estimate
    has_price = forecast.usd is not None
    table = _table("What if", "", "engine time", *(["cost"] if has_price else []))
    for each in sensitivity(forecast):
        share = f" ({each.hours / base - 1:+.0%})" if base else ""
        cells = [each.what, each.change, format_seconds(3600 * each.hours) + share]
        table.add_row(*cells, *([dollars(each.usd)] if each.usd is not None else []))
    console.print(table)


def _interval(interval: Interval, show: Callable[[float], str]) -> str:
    # A bracket opens rich's markup.
    return f"{show(interval.estimate)} \\[{show(interval.low)}, {show(interval.high)}]"


def _short(interval: Interval, show: Callable[[float], str]) -> str:
    return f"{show(interval.estimate)} ±{interval.half_width_share:.0%}"


def _bare(interval: Interval, show: Callable[[float], str]) -> str:
    return show(interval.estimate)


def _money(interval: Interval) -> str:
    return _interval(interval, dollars)


def _duration(interval: Interval) -> str:
    return _interval(interval, lambda value: format_seconds(3600 * value))


def forecast_json(forecast: Forecast, hours: Sequence[float], place: str) -> dict[str, Any]:
    """Return the stored forecast, the deadlines and the sensitivity as plain data."""
    return {
        "forecast": json.loads(forecast.to_json()),
        "deadlines": [asdict(each) for each in deadlines(forecast.alone, hours)],
        **_deadlines_of_larger(forecast, hours),
        "sensitivity": [asdict(each) for each in sensitivity(forecast)],
        "place": place,
    }


def _deadlines_of_larger(forecast: Forecast, hours: Sequence[float]) -> dict[str, Any]:
    if forecast.larger is None:
        return {}
    return {"deadlines_of_larger": [asdict(each) for each in deadlines(forecast.larger, hours)]}


def print_curve(console: Console, curve: Curve, f1: float | None, place: str) -> None:
    """Print the points, and the cheapest way to reach `f1`, or the highest F1 if it is None."""
    has_price = curve.first.usd_per_1k is not None
    table = Table(box=SIMPLE, pad_edge=False)
    cost = "cost of 1,000" if has_price else "engine time for 1,000"
    for number, name in enumerate(("Asked again", "of the answers", "F1", cost)):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for point in (curve.first, *curve.points, curve.larger):
        f1_text = f"{point.f1.value:.3f} \\[{point.f1.low:.3f}, {point.f1.high:.3f}]"
        table.add_row(_way(point), f"{point.asked:.0%}" if point.below is not None else "", f1_text, _cost(point))
    console.print(table)
    gold = f"{curve.num_labels:,} labels of {curve.num_products:,} products in {curve.gold}"
    console.print(f"F1 by {printable(gold)}", highlight=False, markup=False, soft_wrap=True)
    console.print(proposal(curve, f1), highlight=False, soft_wrap=True)
    console.print(f"Curve in {printable(place)}", highlight=False, markup=False, soft_wrap=True)


def proposal(curve: Curve, f1: float | None) -> str:
    """Return a line that proposes which threshold to set."""
    found = curve.best if f1 is None else curve.reaching(f1)
    if found is None:
        best = curve.best
        return f"No way reaches F1 {f1:g}; the best is {_way(best)}: {best.f1.value:.3f} for {_cost(best)}"
    what = "The highest F1" if f1 is None else f"The cheapest way to F1 {f1:g}"
    text = f"[bold]{what}: {_way(found)}[/], {found.f1.value:.3f} for {_cost(found)} for 1,000 products"
    if found.below is None:
        return text + "; a cascade does not pay here"
    return text + f": --set cascade.below={found.below:g}"


def curve_json(curve: Curve, f1: float | None) -> dict[str, Any]:
    """Return the curve and the proposed point as plain data; the point is None if none reaches `f1`."""
    found = curve.best if f1 is None else curve.reaching(f1)
    return curve.to_dict() | {"proposed": None if found is None else asdict(found)}


def _way(point: Point) -> str:
    return point.name if point.below is None else f"below {point.below:g}"


def _cost(point: Point) -> str:
    if point.usd_per_1k is not None:
        return _amount(point.usd_per_1k, dollars)
    return _amount(point.hours_per_1k, lambda hours: format_seconds(3600 * hours))


def _amount(cost: Cost, show: Callable[[float], str]) -> str:
    estimate, _, high = cost
    return f"{show(estimate)} ±{high / estimate - 1:.0%}" if estimate else show(estimate)


SHARES = (0.01, 0.05, 0.1)
"""Shares of the catalog that the tried pilots draw."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """Results of pilots of one size.

    Attributes:
        share: share of the catalog in a pilot.
        num_rows: number of rows in a pilot.
        num_trials: number of pilots drawn.
        num_covered: number of their intervals that contain the true cost.
        mean_error: mean error of the estimates relative to the truth (bias).
        rms_error: root of their mean squared relative error.
        mean_half_width: mean half width of the intervals, relative to the estimates.
    """

    share: float
    num_rows: int
    num_trials: int
    num_covered: int
    mean_error: float
    rms_error: float
    mean_half_width: float

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the truth; should be 95%."""
        return self.num_covered / self.num_trials


def backtest(
    survey: Survey,
    seconds: Mapping[tuple[int, int], float],
    share: float,
    num_trials: int,
    batch_factor: Callable[[np.random.Generator], float] = lambda generator: 1.0,
) -> Backtest | None:
    """Try pilots of `share` of the catalog; return None if that is too few rows for a pilot.

    Args:
        survey: survey with every row of the catalog among its candidates.
        seconds: (file, row) -> cost in seconds; missing rows cost nothing.
        batch_factor: draws how many times slower than usual the machine is during a batch.
    """
    num_rows = round(share * sum(cell.rows for cell in survey.cells.values()))
    if num_rows < MIN_ROWS:
        return None
    generator = np.random.default_rng(0)
    truth = sum(seconds.get((each.file, each.row), 0.0) for cell in survey.cells.values() for each in cell.candidates)
    found = []
    for seed in range(num_trials):
        strata = make_strata(_renumbered(survey, seed), num_rows)
        draw = draw_rows(strata, num_rows, seed)
        counts, sums = np.zeros((len(strata), draw.num_batches)), np.zeros((len(strata), draw.num_batches))
        factors = [batch_factor(generator) for _ in range(draw.num_batches)]
        for row in draw.rows:
            counts[row.stratum, row.batch] += 1
            sums[row.stratum, row.batch] += seconds.get((row.file, row.row), 0.0) * factors[row.batch]
        measured = list(draw.measured_batches)
        rows = np.array([[float(stratum.num_rows) for stratum in strata]])
        found.append(estimate(Measurements(counts[:, measured], sums[:, measured], rows)).total)
    errors = np.array([each.estimate / truth - 1 for each in found])
    return Backtest(
        share,
        num_rows,
        num_trials,
        sum(each.contains(truth) for each in found),
        float(errors.mean()),
        float(np.sqrt((errors**2).mean())),
        float(np.mean([each.half_width_share for each in found])),
    )


def _renumbered(survey: Survey, seed: int) -> Survey:
    """Return the survey with the candidates' numbers and order of another seed."""
    cells: dict[SurveyCell, CellCount] = {}
    for cell, count in survey.cells.items():
        candidates = [each._replace(number=row_number(seed, str(each.file), each.row)) for each in count.candidates]
        cells[cell] = replace(count, candidates=sorted(candidates))
    return Survey(cells, Counter(survey.dead))


def describe(found: Sequence[Backtest]) -> list[str]:
    """Describe each size of a pilot in one line."""
    return [
        f"{each.share:>4.0%}, {each.num_rows:,} rows: {each.num_covered} of {each.num_trials} intervals hold the truth "
        f"({each.coverage:.0%}), ±{each.mean_half_width:.1%} on average; estimates are {each.rms_error:.1%} off, "
        f"{each.mean_error:+.1%} on average"
        for each in found
    ]
