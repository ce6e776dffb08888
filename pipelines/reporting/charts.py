"""Inline SVG from numbers. No text of a catalog gets in; colours are the style sheet's.

Bars inside tables are 100 units wide and stretched to their cell; charts with axes have text of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from pipelines.quality.scoring import ReliabilityBin

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


_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def _x(value: float) -> float:
    """Return the place of a value in [0, 1] on a chart."""
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value


def _y(value: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value


def reliability(bins: Sequence[ReliabilityBin], label_x: str) -> Markup:
    """Draw the share of right values over mean confidence, both in [0, 1]. A point's area grows with its values."""
    most = max(each.count for each in bins)
    truth = '<line class="truth" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
    line = " ".join(f"{_x(each.mean_confidence):.1f},{_y(each.share_right):.1f}" for each in bins)
    point = Markup('<circle class="k0" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>')
    parts = [
        *_axis_y("right"),
        *_axis_x(label_x),
        Markup(truth).format(_x(0), _y(0), _x(1), _y(1)),
        Markup('<polyline class="line" points="{}"/>').format(line),
        *(
            point.format(_x(each.mean_confidence), _y(each.share_right), 3 + 6 * math.sqrt(each.count / most))
            for each in bins
        ),
    ]
    title = "Share of right values over what was said of them"
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img"><title>{}</title>{}</svg>').format(
        _WIDTH, _HEIGHT, title, Markup("").join(parts)
    )


def _flat(content: Markup, kind: str) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>').format(
        kind, content
    )


def _axis_y(label: str) -> list[Markup]:
    grid = (
        '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
        '<text class="end" x="{3}" y="{4:.1f}">{5}</text>'
    )
    lines = [
        Markup(grid).format(_LEFT, _WIDTH - _RIGHT, _y(tick), _LEFT - 6, _y(tick) + 4, f"{tick:,g}") for tick in _TICKS
    ]
    return [*lines, Markup('<text class="name" x="{}" y="{}">{}</text>').format(_LEFT + 4, _TOP + 10, label)]


def _axis_x(label: str) -> list[Markup]:
    text = '<text class="middle" x="{:.1f}" y="{}">{}</text>'
    labels = [Markup(text).format(_x(tick), _HEIGHT - _BOTTOM + 16, f"{tick:,g}") for tick in _TICKS]
    name = Markup('<text class="name end" x="{}" y="{}">{}</text>').format(_WIDTH - _RIGHT, _HEIGHT - 6, label)
    return [*labels, name]
