"""Facts about a cascade run: answers that the larger model was asked again, and the cost of other thresholds."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.cascading.curve import Curve, Point


@dataclass(frozen=True, slots=True)
class CascadeFacts:
    """Second pass of a cascade run.

    Attributes:
        larger: the larger model, with its adapter, as the user named them.
        below: threshold; answers less certain than this were asked again.
        answers: number of the first model's answers. `asked` of them, in `products` products, were asked again.
            `changed` of those now differ; `kept` are unchanged because the larger model had no answer.
        curve: F1 against cost over thresholds, from `hpd plan --gold`; None if it was not made. `curve_place`: its
            path, whether or not it exists.
    """

    larger: str
    below: float
    answers: int
    asked: int
    products: int
    changed: int
    kept: int
    curve: Curve | None
    curve_place: str

    @property
    def ways(self) -> list[Point]:
        """Ways to answer, in the order of the curve: the first model alone, thresholds, the larger model alone."""
        return [] if self.curve is None else [self.curve.first, *self.curve.points, self.curve.larger]

    @property
    def nearest(self) -> int | None:
        """Index in `ways` of the threshold closest to the run's."""
        thresholds = [
            (abs(way.below - self.below), index) for index, way in enumerate(self.ways) if way.below is not None
        ]
        return min(thresholds)[1] if thresholds else None
