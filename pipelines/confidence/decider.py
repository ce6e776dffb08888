"""Decision which answers to accept at a precision, and which to review.

An attribute with enough labelled values has a threshold of its own, or none. The others share one. Its promise covers
all their accepted values together, in the mix that was labelled. An attribute without any label gets no promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipelines.confidence.calibration_file import THRESHOLDS, Calibration, LabelledAttribute
from pipelines.confidence.precision_bounds import Taken, enough, lower_bound, lowest_passing

Decision = Literal["accept", "review"]
Pair = tuple[str, str]

_TIMES_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class Promise:
    """Confidence from which values are accepted.

    Attributes:
        confidence: the threshold.
        taken: the labelled values at or above it, of all attributes that share it.
        is_pooled: whether attributes with few labels share it.
    """

    confidence: float
    taken: Taken
    is_pooled: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        bound = lower_bound(*self.taken)
        return {"confidence": self.confidence, "labels": self.taken.num, "right": self.taken.right, "at_least": bound}


@dataclass(frozen=True)
class Decider:
    """Thresholds at which a precision is promised.

    Attributes:
        precision: in (0, 1).
        promises: promises by category and attribute; all others are for review.
    """

    calibration: Calibration
    precision: float
    promises: Mapping[Pair, Promise] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "promises", dict(self._promises()))

    def decide(
        self, category: str, attribute: str, status: str, confidence: float | None, definition: str | None = None
    ) -> Decision | None:
        """Decide on an answer: accept or review; None if the model says that the text does not state it.

        Args:
            definition: hash of the attribute; one that differs from the labelled one gets no promise. None: it is the
                same.
        """
        if status == "absent":
            return None
        promise = self.promises.get((category, attribute))
        if status != "value" or confidence is None or promise is None:
            return "review"
        if definition not in (None, self.calibration.attributes[category][attribute].definition):
            return "review"
        return "accept" if confidence >= promise.confidence else "review"

    def to_dict(self) -> dict[str, Any]:
        """Return a summary as plain data for JSON."""
        own = {pair: each for pair, each in self.promises.items() if not each.is_pooled}
        pooled = [each for each in self.promises.values() if each.is_pooled]
        return {
            "precision": self.precision,
            "attributes_promised": len(own),
            "attributes_promised_together": len(pooled),
            "attributes_labelled": sum(map(len, self.calibration.attributes.values())),
            "together": pooled[0].to_dict() if pooled else None,
            "own": [
                {"category": category, "attribute": attribute, **each.to_dict()}
                for (category, attribute), each in own.items()
            ],
        }

    def _promises(self) -> Iterator[tuple[Pair, Promise]]:
        rare: dict[Pair, LabelledAttribute] = {}
        for category, attributes in self.calibration.attributes.items():
            for name, attribute in attributes.items():
                # How many there are decides, never how many are right: else the pool would be of those that failed.
                if attribute.labels.num < _TIMES_ENOUGH * enough(self.precision):
                    rare[category, name] = attribute
                elif (promise := self._promise(attribute.taken)) is not None:
                    yield (category, name), promise
        if (promise := self._promise(_together(rare.values()), is_pooled=True)) is not None:
            yield from ((pair, promise) for pair in rare)

    def _promise(self, steps: tuple[Taken, ...], *, is_pooled: bool = False) -> Promise | None:
        place = lowest_passing(steps, self.precision)
        return None if place is None else Promise(THRESHOLDS[place], steps[place], is_pooled)


def _together(attributes: Iterable[LabelledAttribute]) -> tuple[Taken, ...]:
    columns = zip(*(each.taken for each in attributes), strict=True)
    return tuple(Taken(sum(each.num for each in steps), sum(each.right for each in steps)) for steps in columns)
