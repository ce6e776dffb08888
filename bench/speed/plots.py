"""Plots of the sweeps, as SVG. Ink takes the reader's colour, so that they are legible on light and on dark."""

from __future__ import annotations

import io
import statistics
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from bench.speed.sweeps import Swept

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


def draw_sweep(swept: Swept, title: str) -> bytes:
    """The median of every contender by point, on logarithmic x, with all rounds' spread."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        for number, name in enumerate(swept.runs):
            rounds = swept.rates(name)
            medians = [statistics.median(values) for values in rounds]
            below = [median - min(values) for median, values in zip(medians, rounds, strict=True)]
            above = [max(values) - median for median, values in zip(medians, rounds, strict=True)]
            colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
            whiskers = (below, above)
            axes.errorbar(swept.xs, medians, whiskers, label=name, color=colour, marker=marker, markersize=5, capsize=3)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(swept.xs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=_INK, alpha=0.2)
        axes.set_xlabel(swept.sweep.label)
        axes.set_ylabel(swept.sweep.measure)
        num_rounds = len(rounds[0])
        summary = (
            f"median of {num_rounds} rounds; bars from the fastest to the slowest" if num_rounds > 1 else "one round"
        )
        axes.set_title(f"{title}\n{summary}", fontsize=10)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue().decode("utf-8").replace(_INK, "currentColor")
    head, end, rest = svg.partition("<defs>")
    return f"{head}{_STYLE}{end}{rest}".encode()
