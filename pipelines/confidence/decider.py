"""Which answers may be taken at a precision, and which are for review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipelines.confidence.calibration_file import THRESHOLDS, Calibration, LabelledAttribute
from pipelines.confidence.precision_bounds import Taken, lowest_passing

Decision = Literal["accept", "review"]


@dataclass(frozen=True, slots=True)
class Promise:
    """From a confidence on, an attribute's values are accepted.

    Attributes:
        confidence: the threshold.
        taken: the labelled values at or above it.
    """

    confidence: float
    taken: Taken


@dataclass(frozen=True)
class Decider:
    """Thresholds at which a precision is promised.

    Attributes:
        precision: in (0, 1).
        promises: by category and attribute; what is not in it can be promised nothing.
    """

    calibration: Calibration
    precision: float
    promises: Mapping[tuple[str, str], Promise] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "promises", dict(_promises(self.calibration, self.precision)))

    def decide(self, category: str, attribute: str, status: str, confidence: float | None) -> Decision | None:
        """Accepted or not; None where the model says that the text does not state it."""
        if status == "absent":
            return None
        promise = self.promises.get((category, attribute))
        if status != "value" or confidence is None or promise is None:
            return "review"
        return "accept" if confidence >= promise.confidence else "review"


def _promises(calibration: Calibration, precision: float) -> Iterator[tuple[tuple[str, str], Promise]]:
    for category, attributes in calibration.attributes.items():
        for name, attribute in attributes.items():
            if (promise := _promise(attribute, precision)) is not None:
                yield (category, name), promise


def _promise(attribute: LabelledAttribute, precision: float) -> Promise | None:
    place = lowest_passing(attribute.taken, precision)
    return None if place is None else Promise(THRESHOLDS[place], attribute.taken[place])
