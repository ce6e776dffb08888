"""Text of a cascade's F1 against its cost, for people and for machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from pipelines.cascading.curve import Cost, Curve, Point
from pipelines.console.money import dollars
from pipelines.console.progress import format_seconds
from pipelines.console.terminal import printable


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
