"""Draws docs/few-labels.svg: what few labels brought (pipelines/training/few_labels.yaml).

python -m docs.draw_few_labels
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from matplotlib.ticker import FixedLocator

from bench.speed.plots import plot
from pipelines.training.few_curve import Curve, Point, read_curve

PICTURE = Path(__file__).with_name("few-labels.svg")


def draw(curve: Curve | None = None) -> str:
    """The picture, as SVG."""
    curve = curve or read_curve()
    by_set: dict[str, list[Point]] = defaultdict(list)
    for point in sorted(curve.points, key=lambda point: point.labels):
        by_set[point.set].append(point)
    title = f"A category that {curve.model} was not trained on, by labelled products of it; bars: 95%"
    with plot(title, "labelled products of the category", "micro F1, exact match") as drawn:
        for number, (name, points) in enumerate(sorted(by_set.items())):
            below, above = ([point.f1 - point.low for point in points], [point.high - point.f1 for point in points])
            xs, ys = [point.labels for point in points], [point.f1 for point in points]
            drawn.points(number, name, xs, ys, (below, above))
        drawn.axes.set_xscale("symlog", linthresh=10)
        drawn.axes.xaxis.set_major_locator(FixedLocator(sorted({point.labels for point in curve.points})))
    return drawn.svg.decode("utf-8")


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
