"""What a run of two models asked the larger one, and what other thresholds would come to."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.cascading.curve import Curve, Point


@dataclass(frozen=True, slots=True)
class CascadeFacts:
    """The second look of a run.

    Attributes:
        larger: the model, and its adapter, as the user named them.
        below: answers less certain than this were asked again.
        answers: of the first model; `asked` of them were asked again, in `products`, `changed` of those say something
            else now, `kept` are as they were because the larger model had none.
        curve: F1 against cost over thresholds, by `hpd plan --gold`; None where that was not made. `curve_place`: where
            it is, or would be.
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
        """Of `ways`, the threshold closest to the run's."""
        thresholds = [
            (abs(way.below - self.below), index) for index, way in enumerate(self.ways) if way.below is not None
        ]
        return min(thresholds)[1] if thresholds else None
