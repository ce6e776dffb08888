"""Inline SVG from numbers. No text of a catalog gets in; colours are the style sheet's.

Bars inside tables are 100 units wide and stretched to their cell; charts with axes have text of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from pipelines.quality.answer_features import ReliabilityBin
from pipelines.quality.curve import Point

_WIDTH, _HEIGHT = 460, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 26, 14, 40


def bar(share: float | None, kind: str = "k0") -> Markup:
    """Draw a bar of `share` of its cell."""
    width = 100 * min(1.0, max(0.0, share or 0.0))
    return _flat(Markup('<rect class="{}" width="{:.3f}" height="10"/>').format(kind, width), "bar")


def stacked(shares: Sequence[float]) -> Markup:
    """Draw one bar of several parts, coloured k0, k1, ..."""
    rects, left = [], 0.0
    for index, part in enumerate(shares):
        width = 100 * max(0.0, part)
        rects.append(Markup('<rect class="k{}" x="{:.3f}" width="{:.3f}" height="10"/>').format(index, left, width))
        left += width
    return _flat(Markup("").join(rects), "stack")


def change(ratio: float, widest: float) -> Markup:
    """Draw a bar to the left (less) or right (more) of a centre line; `widest` is the largest change of all."""
    width = 50 * min(1.0, abs(ratio) / widest) if widest else 0.0
    left = 50 - width if ratio < 0 else 50
    rect = Markup('<rect class="{}" x="{:.3f}" width="{:.3f}" height="10"/>').format(
        "less" if ratio < 0 else "more", left, width
    )
    return _flat(rect + Markup('<rect class="rule" x="49.8" width="0.4" height="10"/>'), "bar")


def interval(low: float, estimate: float, high: float, actual: float | None) -> Markup:
    """Draw an interval with its estimate and the actual value."""
    values = [low, estimate, high, *([] if actual is None else [actual])]
    least, most = min(values), max(values)
    spread = most - least or abs(most) or 1.0

    def x(value: float) -> float:
        return 8 + 184 * (value - least) / spread if most > least else 100.0

    parts = [
        Markup('<line class="whisker" x1="{:.2f}" x2="{:.2f}" y1="12" y2="12"/>').format(x(low), x(high)),
        *(
            Markup('<line class="whisker" x1="{0:.2f}" x2="{0:.2f}" y1="6" y2="18"/>').format(x(edge))
            for edge in (low, high)
        ),
        Markup('<rect class="k0" x="{:.2f}" y="7" width="3" height="10"/>').format(x(estimate) - 1.5),
    ]
    if actual is not None:
        inside = low <= actual <= high
        parts.append(
            Markup('<circle class="{}" cx="{:.2f}" cy="12" r="5"/>').format("good" if inside else "bad", x(actual))
        )
    return Markup('<svg class="interval" viewBox="0 0 200 24" aria-hidden="true">{}</svg>').format(
        Markup("").join(parts)
    )


def _scales(right: float, top: float) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the functions from values to places of a chart; `right` and `top` lie at its edges."""
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return lambda value: _LEFT + width * value / right, lambda value: _HEIGHT - _BOTTOM - height * value / top


def progress(points: Sequence[tuple[float, int]]) -> Markup:
    """Draw products over time: (seconds, products) from the start on."""
    end, most = max(points[-1][0], 1e-9), max(points[-1][1], 1)
    ticks_y, top = _ticks(most)
    unit, factor = ("h", 3600.0) if end >= 7200 else ("min", 60.0) if end >= 120 else ("s", 1.0)
    ticks_x, _ = _ticks(end / factor)

    x, y = _scales(end, top)

    line = " ".join(f"{x(seconds):.1f},{y(products):.1f}" for seconds, products in points)
    area = f"{x(0):.1f},{y(0):.1f} {line} {x(end):.1f},{y(0):.1f}"
    return _chart(
        "Products over time",
        [
            *_axis_y(ticks_y, y, "products"),
            *_axis_x([tick for tick in ticks_x if tick * factor <= end], lambda tick: x(tick * factor), unit),
            Markup('<polygon class="area" points="{}"/><polyline class="line" points="{}"/>').format(area, line),
        ],
    )


def scatter(points: Sequence[tuple[float, float, float, float, bool]], label_x: str) -> Markup:
    """Draw quality over cost: (x, y, low, high, is this run), numbered as in the table beside it. y is in [0, 1]."""
    ticks_x, right = _ticks(max(point[0] for point in points) * 1.08)
    ticks_y = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]

    x, y = _scales(right, 1)

    marks = []
    for index, (cost, score, low, high, is_this) in enumerate(points, start=1):
        whisker = '<line class="whisker" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>'
        marks.append(Markup(whisker).format(x(cost), y(low), y(high)))
        kind = "good" if is_this else "k0"
        marks.append(Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="5"/>').format(kind, x(cost), y(score)))
        marks.append(Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(x(cost) + 8, y(score) - 6, index))
    axes = [*_axis_y(ticks_y, y, "F1"), *_axis_x(ticks_x, x, label_x)]
    return _chart("Quality over cost", [*axes, *marks])


def cost_curve(ways: Sequence[Point], nearest: int | None, label_x: str) -> Markup:
    """Draw F1 over cost: thresholds on a line, the models alone beside it; numbered as in the table beside it.

    Args:
        ways: the first model alone, the thresholds, the larger model alone.
        nearest: index in `ways` of the threshold closest to the run's.
    """
    ticks_x, right = _ticks(max(way.cost for way in ways) * 1.08)
    ticks_y, top = _ticks(max(way.f1.high for way in ways))

    x, y = _scales(right, top)

    line = " ".join(f"{x(way.cost):.1f},{y(way.f1.value):.1f}" for way in ways if way.below is not None)
    marks = [Markup('<polyline class="line" points="{}"/>').format(line)]
    for index, way in enumerate(ways):
        left, height = x(way.cost), y(way.f1.value)
        kind, radius = ("good", 6) if index == nearest else ("k0", 3 if way.below is not None else 5)
        marks.append(Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(kind, left, height, radius))
        if way.below is None or index == nearest:
            whisker = '<line class="whisker" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>'
            marks.append(Markup(whisker).format(left, y(way.f1.low), y(way.f1.high)))
            marks.append(Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(left + 8, height - 6, index + 1))
    axes = [*_axis_y(ticks_y, y, "F1"), *_axis_x(ticks_x, x, label_x)]
    return _chart("F1 against cost", [*axes, *marks])


def reliability(bins: Sequence[ReliabilityBin], label_x: str) -> Markup:
    """Draw the share of right values over mean confidence, both in [0, 1]. A point's area grows with its values."""
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    most = max(each.count for each in bins)

    x, y = _scales(1, 1)

    truth = '<line class="truth" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
    line = " ".join(f"{x(each.mean_confidence):.1f},{y(each.share_right):.1f}" for each in bins)
    point = '<circle class="k0" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>'
    return _chart(
        "Share of right values over what was said of them",
        [
            *_axis_y(ticks, y, "right"),
            *_axis_x(ticks, x, label_x),
            Markup(truth).format(x(0), y(0), x(1), y(1)),
            Markup('<polyline class="line" points="{}"/>').format(line),
            *(
                Markup(point).format(x(each.mean_confidence), y(each.share_right), 3 + 6 * math.sqrt(each.count / most))
                for each in bins
            ),
        ],
    )


def _flat(content: Markup, kind: str) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>').format(
        kind, content
    )


def _chart(title: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img"><title>{}</title>{}</svg>').format(
        _WIDTH, _HEIGHT, title, Markup("").join(parts)
    )


def _axis_y(ticks: Sequence[float], y: Callable[[float], float], label: str) -> list[Markup]:
    grid = (
        '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
        '<text class="end" x="{3}" y="{4:.1f}">{5}</text>'
    )
    lines = [
        Markup(grid).format(_LEFT, _WIDTH - _RIGHT, y(tick), _LEFT - 6, y(tick) + 4, f"{tick:,g}") for tick in ticks
    ]
    return [*lines, Markup('<text class="name" x="{}" y="{}">{}</text>').format(_LEFT + 4, _TOP + 10, label)]


def _axis_x(ticks: Sequence[float], x: Callable[[float], float], label: str) -> list[Markup]:
    text = '<text class="middle" x="{:.1f}" y="{}">{}</text>'
    labels = [Markup(text).format(x(tick), _HEIGHT - _BOTTOM + 16, f"{tick:,g}") for tick in ticks]
    name = Markup('<text class="name end" x="{}" y="{}">{}</text>').format(_WIDTH - _RIGHT, _HEIGHT - 6, label)
    return [*labels, name]


def _ticks(most: float) -> tuple[list[float], float]:
    """Return round numbers from 0 to at least `most`, and the last of them."""
    most = most if most > 0 else 1.0
    step = 10 ** math.floor(math.log10(most / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if most / (step * factor) <= 5)
    count = math.ceil(most / step - 1e-9)
    return [round(step * index, 10) for index in range(count + 1)], step * count
