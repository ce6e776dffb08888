"""Loss curve: one picture with training loss and validation F1."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure


def draw_curve(log: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw an SVG of a run's log: loss (left axis) and F1 scores, if any (right axis), by epoch."""
    losses = [(entry["epoch"], entry["loss"]) for entry in log if "loss" in entry]
    scores = [(entry["epoch"], entry["validation"]["f1"]) for entry in log if "validation" in entry]
    figure = Figure(figsize=(8, 4), layout="constrained")
    left = figure.add_subplot()
    left.set_xlabel("epoch")
    left.set_ylabel("training loss per token")
    if losses:
        left.plot(*zip(*losses, strict=True), color="tab:blue", label="training loss")
        left.set_ylim(bottom=0)
    if scores:
        right = left.twinx()
        right.plot(*zip(*scores, strict=True), color="tab:orange", marker="o", label="validation F1")
        right.set_ylabel("validation F1")
        right.set_ylim(0, 1)
    figure.legend(loc="outside upper center", ncols=2)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
