"""Measured learning curve of few labels (few_labels.yaml), compared with the user's number of labels."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from hpd_core.system.section import Section
from pipelines.config.loading import load_config

_FILE = Path(__file__).with_name("few_labels.yaml")


class FewPoint(Section):
    """F1 measured with `labels` labelled products."""

    set: str = Field(description="public data set")
    labels: int = Field(ge=0, description="labelled products of the category that were trained on; 0: none")
    f1: float = Field(ge=0, le=1, description="of the category's test products, over all categories measured")
    low: float = Field(ge=0, le=1, description="its 95% interval's lower end")
    high: float = Field(ge=0, le=1, description="its 95% interval's upper end")


class FewCurve(Section):
    """F1 of a category that a model did not know, by the number of labels that it was then trained on."""

    model: str = Field(description="what was trained, as `model` of a fine-tuning names it")
    command: str = Field(description="what measured it")
    points: tuple[FewPoint, ...] = Field(description="in any order; may be empty")

    def lines(self, model: str, per_category: Mapping[str, int]) -> Iterator[str]:
        """Yield lines for the user.

        Args:
            model: model that is to be trained.
            per_category: category -> number of products to train on; at least one category.
        """
        if not self.points:
            yield "what to expect was not measured: hpd evaluate tells afterwards, on products that were kept apart"
            return
        yield "what to expect: F1 [95%] of a category that the model did not know, by its labelled products:"
        yield from self._table()
        yield f"measured with {self.model}: {self.command}"
        if model != self.model:
            yield f"this is for {self.model}; of {model} nothing was measured"
        yield self._place(per_category)

    def _table(self) -> Iterator[str]:
        sets = sorted({point.set for point in self.points})
        cells = {
            (point.labels, point.set): f"{point.f1:.3f} [{point.low:.3f}, {point.high:.3f}]" for point in self.points
        }
        yield "  labels" + "".join(f"  {name:20}" for name in sets).rstrip()
        for labels in self._measured():
            row = "".join(f"  {cells.get((labels, name), '-'):20}" for name in sets)
            yield f"  {labels:6,}{row}".rstrip()

    def _measured(self) -> list[int]:
        return sorted({point.labels for point in self.points})

    def _place(self, per_category: Mapping[str, int]) -> str:
        """Return where these labels are on the curve, without extrapolation."""
        counts = sorted(per_category.values())
        own, measured = statistics.median_low(counts), self._measured()
        yours = f"to train on you have {own:,} of a category"
        if len(counts) > 1:
            yours += f" (the middle one of {len(counts):,}; {counts[0]:,} to {counts[-1]:,})"
        if own < measured[0]:
            return f"{yours}, fewer than the {measured[0]:,} that were measured at least: what they bring is not known"
        if own > measured[-1]:
            return f"{yours}, more than the {measured[-1]:,} that were measured at most: what they bring is not known"
        below, above = max(each for each in measured if each <= own), min(each for each in measured if each >= own)
        return f"{yours}: {f'as in the line {own:,}' if below == above else f'between {below:,} and {above:,}'}"


def read_curve(path: Path = _FILE) -> FewCurve:
    """Read a curve from a file, by default the shipped one. Raises `UsageError` if the file is not a curve."""
    return load_config(FewCurve, str(path))
