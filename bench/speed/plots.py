"""Plots as SVG, of the sweeps and for the documentation. Ink takes the reader's colour, on light and on dark."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from bench.speed.sweeps import Swept

Whiskers: TypeAlias = tuple[Sequence[float], Sequence[float]]

_INK = "#123456"  # a colour that nothing else has; becomes the text colour of the style sheet
COLOURS = ("#2f81d0", "#d0700a", "#16986a", "#b84f8c", "#c9483c", "#1f8fb5", "#808080")
"""Neither light nor dark, so that they stand out from both grounds; markers tell them apart for everybody."""
_MARKERS = "os^Dv<>"
INK_ON_LIGHT, INK_ON_DARK = "#24292f", "#d0d7de"
_STYLE = f"<style>svg{{color:{INK_ON_LIGHT}}}@media(prefers-color-scheme:dark){{svg{{color:{INK_ON_DARK}}}}}</style>"
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: to be found, copied and read aloud
    "svg.hashsalt": "hpd",  # the same numbers give the same file
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass
class Plot:
    """Axes to draw on, and the picture as SVG when the `with` block of `plot` has ended."""

    axes: Axes
    svg: bytes = b""

    def points(self, number: int, name: str, xs: Sequence[float], ys: Sequence[float], whiskers: Whiskers) -> None:
        """Line `number`, from 0 on.

        Args:
            whiskers: how far its bars go down and up at each x.
        """
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        self.axes.errorbar(xs, ys, whiskers, label=name, color=colour, marker=marker, markersize=5, capsize=3)


@contextmanager
def plot(title: str, x_label: str, y_label: str) -> Iterator[Plot]:
    """A picture with a legend below; y begins at 0."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        figure.patch.set_alpha(0)
        found = Plot(figure.add_subplot())
        axes = found.axes
        axes.patch.set_alpha(0)
        yield found
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=_INK, alpha=0.2)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_title(title, fontsize=10)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue().decode("utf-8").replace(_INK, "currentColor")
    head, end, rest = svg.partition("<defs>")
    found.svg = f"{head}{_STYLE}{end}{rest}".encode()


def draw_sweep(swept: Swept, title: str) -> bytes:
    """The median of every contender by point, on logarithmic x, with all rounds' spread."""
    num_rounds = max(len(values) for name in swept.runs for values in swept.rates(name))
    summary = f"median of {num_rounds} rounds; bars from the fastest to the slowest" if num_rounds > 1 else "one round"
    with plot(f"{title}\n{summary}", swept.sweep.label, swept.sweep.measure) as drawn:
        for number, name in enumerate(swept.runs):
            rounds = swept.rates(name)
            medians = [statistics.median(values) for values in rounds]
            below = [median - min(values) for median, values in zip(medians, rounds, strict=True)]
            above = [max(values) - median for median, values in zip(medians, rounds, strict=True)]
            drawn.points(number, name, swept.xs, medians, (below, above))
        drawn.axes.set_xscale("log", base=2)
        drawn.axes.xaxis.set_major_locator(FixedLocator(swept.xs))
    return drawn.svg
