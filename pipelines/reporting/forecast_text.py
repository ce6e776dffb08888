"""Text of a forecast, for people and as one JSON object for machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from pipelines.console.progress import format_seconds
from pipelines.console.terminal import dollars, printable
from pipelines.job.prices import why_no_price
from pipelines.reporting.forecast import Deadline, Forecast, Interval, deadlines

_CATEGORIES_SHOWN = 20


def print_forecast(console: Console, forecast: Forecast, hours: Sequence[float], place: str) -> None:
    """Print the price, its parts, and the deadlines."""

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
    """Return the stored forecast and the deadlines as plain data."""
    names = ("deadlines", "deadlines_of_larger")
    found = {
        name: [asdict(each) for each in deadlines(model, hours)]
        for name, model in zip(names, forecast.models, strict=False)
    }
    return {"forecast": json.loads(forecast.to_json()), **found, "place": place}
