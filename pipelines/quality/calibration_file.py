"""Calibration learned from labelled answers of one model, as a plain JSON file beside its adapter.

Monotone curves from a score to the probability that the answer is right.

Choice of the threshold that keeps a promise of precision: exact tests of counts, keeping the level over thresholds.

Above a threshold are `num` labelled answers, `right` of them right. The promise "at least `precision` are right" is
made if a lower precision would do so well in at most 5 of 100 draws. That is the case if the one-sided 95% lower bound
of Clopper and Pearson is at least `precision`.

Several thresholds are tested. Those that could pass at all (by their numbers, never by the labels) share the 5%
equally, from the highest down. One that passes hands its share on to the next: the fallback procedure of Wiens and
Dmitrienko. It keeps the chance that any wrong promise passes below 5%.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from scipy.special import betainc, betaincinv

from hpd_core.types import content_hash
from pipelines.errors import UsageError
from pipelines.quality.answer_features import AnswerFeatures, Score
from pipelines.store.folders import open_filesystem

CALIBRATION_NAME = "calibration.json"

THRESHOLDS = (0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.0)
"""Confidences above which answers may be accepted, highest first. They are fixed, so that no label influences them."""

NOT_SAID = "not said"
"""Placeholder for decoding settings that a table row does not record. Within one run they do not differ."""

_FORMAT = 1
_MOST_LABELS = 2**53  # what a float holds exactly
_DECODED = (
    *("decoding", "layout", "quantization", "max_scored_tokens", "document_attention", "strings"),
    *("numbers", "answer_threshold"),
)


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """The model whose answers were labelled, and its decoding settings.

    Attributes:
        prompt_hash: hash of the prompt around the document; attributes have their own weights.
        decoding, layout, quantization, max_scored_tokens, document_attention, strings, numbers, answer_threshold: as in
            an engine's description; `NOT_SAID` agrees with all.
    """

    model_id: str
    model_revision: str | None
    adapter_revision: str | None
    prompt_hash: str
    decoding: str | None
    layout: str | None
    quantization: str | None
    max_scored_tokens: int | str = NOT_SAID  # as in files of before it counted
    document_attention: str | None = NOT_SAID  # likewise
    strings: str | None = NOT_SAID  # likewise
    numbers: str = "free"  # as all were before
    answer_threshold: float | str | None = None  # there was none before

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> CalibratedModel:
        """Build from an engine's description, or from a table row, which lacks some of the settings."""
        if "decoding" in row:
            row = {"numbers": "free", "answer_threshold": None, **row}  # a description of before there were any
        decoded = (row.get(name, NOT_SAID) for name in _DECODED)
        return cls(row["model_id"], row["model_revision"], row["adapter_revision"], row["prompt_hash"], *decoded)

    def differences(self, other: CalibratedModel) -> list[str]:
        """Return the differences between the two, in words. A model at another place is the same if its revision is."""
        names = ["model_revision", "adapter_revision", "prompt_hash", *_DECODED]
        if self.model_revision is None or other.model_revision is None:
            names[0] = "model_id"
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        found = [(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]
        return [f"{name} {mine} there, {theirs} here" for name, mine, theirs in found if NOT_SAID not in (mine, theirs)]


class DecodedBy:
    """Engines that may have given the answers of a table's rows.

    A row does not record how its answer was decoded. Alone, it would agree with a calibration of other decoding
    settings.
    """

    def __init__(self, engines: Sequence[CalibratedModel]) -> None:
        self.engines = engines
        self._known: dict[CalibratedModel, CalibratedModel] = {}

    def of(self, row: Mapping[str, Any]) -> CalibratedModel:
        """Return the first engine that may have given a row's answer; if there is none, the row's own model."""
        said = CalibratedModel.of(row)
        if said not in self._known:
            self._known[said] = next((each for each in self.engines if not each.differences(said)), said)
        return self._known[said]


class LabelledAttribute(NamedTuple):
    """Label counts of one attribute.

    Attributes:
        definition: hash of the attribute that was labelled (`definition_of`).
        taken: for each of `THRESHOLDS`, its labelled values of at least that confidence.
    """

    definition: str
    taken: tuple[Taken, ...]

    @property
    def labels(self) -> Taken:
        """Counts of all its labelled values."""
        return self.taken[-1]


@dataclass(frozen=True)
class Calibration:
    """Estimator of the probability that an answer is right.

    Attributes:
        attributes: label counts by category and name, made by cross-fitted confidences.
        about: sample sizes, dates, log losses and calibration errors, for people.
    """

    model: CalibratedModel
    score: Score
    curve: Curve
    attributes: Mapping[str, Mapping[str, LabelledAttribute]]
    about: Mapping[str, Any] = field(default_factory=dict)

    def confidence(self, answer: AnswerFeatures) -> float | None:
        """Return the probability that the answer is right; None without a value."""
        return self.curve.of(self.score.of(answer)) if answer.status == "value" else None

    @cached_property
    def hash(self) -> str:
        """Short hash of the whole content."""
        return content_hash(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "format": _FORMAT,
            "model": {name: getattr(self.model, name) for name in CalibratedModel.__dataclass_fields__},
            "about": dict(self.about),
            "thresholds": list(THRESHOLDS),
            "attributes": {
                category: {
                    name: {"definition": each.definition, "taken": [list(taken) for taken in each.taken]}
                    for name, each in attributes.items()
                }
                for category, attributes in self.attributes.items()
            },
            "score": self.score.to_dict(),
            "curve": self.curve.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Any, place: str) -> Calibration:
        """Invert `to_dict`. Raises `UsageError`, naming `place`, for other data or another version."""
        if not isinstance(data, dict) or "format" not in data:
            raise UsageError(f"{place} is no calibration; `hpd evaluate RUN --calibrate` writes one")
        if data["format"] != _FORMAT or data.get("thresholds") != list(THRESHOLDS):
            raise UsageError(
                f"{place} was written by another version of this project; learn it anew: hpd evaluate RUN --calibrate"
            )
        try:
            attributes = {
                category: {name: _attribute(entry) for name, entry in entries.items()}
                for category, entries in data["attributes"].items()
            }
            score, curve = Score.from_dict(data["score"]), curve_from_dict(data["curve"])
            return cls(CalibratedModel(**data["model"]), score, curve, attributes, _about(data["about"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UsageError(
                f"{place} is damaged ({type(error).__name__}: {error}); learn it anew: hpd evaluate RUN --calibrate"
            ) from error

    @classmethod
    def read(cls, uri: str) -> Calibration:
        """Read the calibration in a local file or at any fsspec URI. Raises `UsageError` if there is none."""
        try:
            filesystem, path = open_filesystem(uri)
            content: bytes = filesystem.cat_file(path)
            data = json.loads(content)
        except FileNotFoundError as error:
            raise UsageError(f"there is no calibration {uri}; `hpd evaluate RUN --calibrate` learns one") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read the calibration {uri}: {error}") from error
        return cls.from_dict(data, uri)

    def to_json(self) -> bytes:
        """Encode the file, a line for each part; equal calibrations give equal content."""
        lines = (f"{json.dumps(key)}: {json.dumps(part, ensure_ascii=False)}" for key, part in self.to_dict().items())
        return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _about(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, dict) or not all(isinstance(data.get(name) or {}, dict) for name in ("labels", "ece")):
        raise ValueError("'about' has no labels and errors")
    return data


def _attribute(entry: Mapping[str, Any]) -> LabelledAttribute:
    taken = tuple(Taken(num, right) for num, right in entry["taken"])
    # From step to step, right ones and wrong ones are added.
    parts = [(each.right, each.num - each.right) for each in (Taken(0, 0), *taken)]
    falls = any(more < less for pair in pairwise(parts) for less, more in zip(*pair, strict=True))
    are_counts = all(type(count) is int and count <= _MOST_LABELS for each in taken for count in each)
    if len(taken) != len(THRESHOLDS) or falls or not are_counts:
        raise ValueError("an attribute's counts do not fit the thresholds")
    return LabelledAttribute(str(entry["definition"]), taken)


@dataclass(frozen=True, slots=True)
class Platt:
    """A logistic curve.

    Attributes:
        slope: at least 0.
    """

    slope: float
    intercept: float
    kind: ClassVar[str] = "platt"

    def of(self, score: float) -> float:
        """Return the probability at a score."""
        # Nothing is certain: farther out, a float would be 0 or 1.
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, self.slope * score + self.intercept))))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"kind": self.kind, "slope": self.slope, "intercept": self.intercept}


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising curve through points, straight in between and level outside.

    Attributes:
        scores: ascending, each once.
        probabilities: ascending.
    """

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    kind: ClassVar[str] = "isotonic"

    def of(self, score: float) -> float:
        """Return the probability at a score."""
        place = bisect_right(self.scores, score)
        if place == 0:
            return self.probabilities[0]
        if place == len(self.scores):
            return self.probabilities[-1]
        low, high = self.probabilities[place - 1], self.probabilities[place]
        below, above = self.scores[place - 1], self.scores[place]
        return min(high, low + (high - low) * ((score - below) / (above - below)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"kind": self.kind, "scores": list(self.scores), "probabilities": list(self.probabilities)}


Curve = Platt | Isotonic


def curve_from_dict(data: Mapping[str, Any]) -> Curve:
    """Invert `to_dict`. Raises `KeyError`, `TypeError` or `ValueError` for data that are not a curve's."""
    if data["kind"] == Platt.kind:
        slope, intercept = float(data["slope"]), float(data["intercept"])
        if not (slope >= 0 and math.isfinite(slope) and math.isfinite(intercept)):
            raise ValueError("a curve has to rise")
        return Platt(slope, intercept)
    if data["kind"] != Isotonic.kind:
        raise ValueError(f"there is no kind of curve {data['kind']!r}")
    scores, probabilities = (tuple(map(float, data[name])) for name in ("scores", "probabilities"))
    rises = sorted(set(scores)) == list(scores) and sorted(probabilities) == list(probabilities)
    if not all(map(math.isfinite, (*scores, *probabilities))):
        raise ValueError("a curve's points are finite")
    if not scores or len(scores) != len(probabilities) or not rises:
        raise ValueError("a curve has to rise")
    if not 0 <= probabilities[0] <= probabilities[-1] <= 1:
        raise ValueError("a probability is between 0 and 1")
    return Isotonic(scores, probabilities)


LEVEL = 0.05
"""Probability that a promise does not hold."""


class Taken(NamedTuple):
    """Number of labelled answers at or above a threshold, and how many of them are right."""

    num: int
    right: int


def tail(num: int, right: int, precision: float) -> float:
    """Return the probability that at least `right` of `num` are right, if each is with probability `precision`."""
    return float(betainc(right, num - right + 1, precision)) if right > 0 else 1.0


def lower_bound(num: int, right: int, level: float = LEVEL) -> float:
    """Return the one-sided lower bound of Clopper and Pearson: the lowest precision that `level` does not rule out."""
    return float(betaincinv(right, num - right + 1, level)) if right > 0 else 0.0


def enough(precision: float, level: float = LEVEL) -> int:
    """Return how many answers, all of them right, are needed to promise `precision`, which is below 1."""
    return math.ceil(math.log(level) / math.log(precision) - 1e-12)


def lowest_passing(steps: Sequence[Taken], precision: float, level: float = LEVEL) -> int | None:
    """Return the index of the lowest threshold at which `precision` can be promised; None if there is none.

    Args:
        steps: counts by threshold, from the highest to the lowest; each includes those above it.
    """
    tested = [
        place
        for place, step in enumerate(steps)
        if tail(step.num, step.num, precision) <= level and (place == 0 or step.num > steps[place - 1].num)
    ]
    passing, handed_on = None, 0.0
    for place in tested:
        share = handed_on + level / len(tested)
        passes = tail(*steps[place], precision) <= share
        handed_on = share if passes else 0.0
        passing = place if passes else passing
    return passing
