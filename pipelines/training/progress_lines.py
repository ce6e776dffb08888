"""Progress of a training, as numbers for its log and as lines for the user."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from pipelines.training.step_planner import TrainingStep


class Meter:
    """Meter of loss, accuracy and speed between two progress lines."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Reset the sums and the clock, so that validation time does not count as training."""
        self._started = time.monotonic()
        self._loss, self._right, self._targets, self._documents, self._norm = 0.0, 0, 0, 0, 0.0

    def add(self, step: TrainingStep, loss: float, num_right: int, norm: float) -> None:
        """Add this worker's part of one step."""
        self._loss += loss
        self._right += num_right
        self._norm = norm
        self._targets += sum(example.num_targets for pack in step.packs[0] for example in pack)
        self._documents += step.num_documents

    @property
    def is_due(self) -> bool:
        """Whether a progress line is due."""
        return time.monotonic() - self._started >= self._seconds

    def take(self) -> dict[str, float]:
        """Return the means since the last reset, and reset. The gradient norm is that of the last step."""
        seconds = time.monotonic() - self._started
        answer = {
            "loss": self._loss / max(1, self._targets),
            "accuracy": self._right / max(1, self._targets),
            "gradient_norm": self._norm,
            "documents_per_second": self._documents / seconds,
        }
        self.restart()
        return answer


def progress_line(entry: Mapping[str, Any], num_steps: int, seconds: float) -> str:
    """Format a log entry as a line. `seconds`: time of all steps so far."""
    start = f"step {entry['step']}/{num_steps} (epoch {entry['epoch']:.2f})"
    if "validation" in entry:
        score = entry["validation"]
        rate, refusals = score["hallucination_rate"], score["refusals"]
        refused = f"; {len(refusals)} of the products refused ({refusals[0]})" if refusals else ""
        return (
            f"{start}  validation: F1 {score['f1']:.3f}, precision {score['precision']:.3f}, recall "
            f"{score['recall']:.3f}, hallucination rate {'-' if rate is None else f'{rate:.3f}'}; "
            f"{score['num_answered']} of {score['num_unlabelled']} unlabelled attributes got a value{refused}"
        )
    left = (num_steps - entry["step"]) * seconds / max(1, entry["step"]) / 60
    return (
        f"{start}  loss {entry['loss']:.4f}, tokens right {entry['accuracy']:.1%}, lr {entry['lr']:.2e}, "
        f"{entry['documents_per_second']:.1f} products/s, {left:.0f} min left"
    )


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
