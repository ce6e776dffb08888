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
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator
from scipy.special import betainc, betaincinv

from hpd_core.types import content_hash
from pipelines.errors import UsageError
from pipelines.quality.answer_features import AnswerFeatures, Kept, Score
from pipelines.store.folders import open_filesystem

CALIBRATION_NAME = "calibration.json"

THRESHOLDS = (0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.0)
"""Confidences above which answers may be accepted, highest first. They are fixed, so that no label influences them."""

NOT_SAID = "not said"
"""Placeholder for decoding settings that a table row does not record. Within one run they do not differ."""

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

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")  # a setting that came later is not read over

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
        """Return in words how the model that gave other answers differs from this one, whose answers were labelled.

        A model at another place is the same if its revision is. What was learned without a threshold holds with any:
        the answers that are left were among the labelled ones. The reverse would accept answers without any label.
        """
        names = ["model_revision", "adapter_revision", "prompt_hash", *_DECODED]
        if self.model_revision is None or other.model_revision is None:
            names[0] = "model_id"
        if self.answer_threshold is None:
            names.remove("answer_threshold")
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


class Taken(NamedTuple):
    """Number of labelled answers at or above a threshold, and how many of them are right."""

    num: Annotated[int, Field(strict=True, le=_MOST_LABELS)]
    right: Annotated[int, Field(strict=True, ge=0)]


def _check_steps(steps: tuple[Taken, ...]) -> tuple[Taken, ...]:
    # From step to step, right ones and wrong ones are added.
    parts = [(each.right, each.num - each.right) for each in (Taken(0, 0), *steps)]
    falls = any(more < less for pair in pairwise(parts) for less, more in zip(*pair, strict=True))
    if len(steps) != len(THRESHOLDS) or falls:
        raise ValueError("counts do not fit the thresholds")
    return steps


Steps = Annotated[tuple[Taken, ...], AfterValidator(_check_steps)]
"""For each of `THRESHOLDS`, the labelled values of at least that confidence."""


class LabelledAttribute(Kept):
    """Label counts of one attribute.

    Attributes:
        definition: hash of the attribute that was labelled (`Attribute.definition`).
        taken: counts of its labelled values.
    """

    definition: str
    taken: Steps

    @property
    def labels(self) -> Taken:
        """Counts of all its labelled values."""
        return self.taken[-1]


class Platt(Kept):
    """A logistic curve."""

    kind: Literal["platt"] = "platt"
    slope: float = Field(ge=0)
    intercept: float

    def of(self, score: float) -> float:
        """Return the probability at a score."""
        # Nothing is certain: farther out, a float would be 0 or 1.
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, self.slope * score + self.intercept))))


class Isotonic(Kept):
    """A rising curve through points, straight in between and level outside.

    Attributes:
        scores: ascending, each once.
        probabilities: ascending.
    """

    kind: Literal["isotonic"] = "isotonic"
    scores: tuple[float, ...] = Field(min_length=1)
    probabilities: tuple[Annotated[float, Field(ge=0, le=1)], ...]

    @model_validator(mode="after")
    def _check_rise(self) -> Self:
        rises = sorted(set(self.scores)) == list(self.scores) and sorted(self.probabilities) == list(self.probabilities)
        if len(self.scores) != len(self.probabilities) or not rises:
            raise ValueError("a curve has to rise")
        return self

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


Curve = Platt | Isotonic


class Calibration(Kept):
    """Estimator of the probability that an answer is right.

    Attributes:
        attributes: label counts by category and name, made by cross-fitted confidences.
        catalogs: the same counts by catalog, of confidences learned from the other catalogs, if it is for catalogs
            without labels; `attributes` is empty then.
        about: sample sizes, dates, log losses and calibration errors, for people.
    """

    format: Literal[1] = 1
    model: CalibratedModel
    about: dict[str, Any] = Field(default_factory=dict)
    thresholds: tuple[float, ...] = THRESHOLDS
    attributes: dict[str, dict[str, LabelledAttribute]]
    catalogs: dict[str, Steps] = Field(default_factory=dict)
    score: Score
    curve: Curve = Field(discriminator="kind")

    @model_validator(mode="after")
    def _check_about(self) -> Self:
        if self.thresholds != THRESHOLDS:
            raise ValueError("its thresholds are another version's")
        if not all(isinstance(self.about.get(name) or {}, dict) for name in ("labels", "ece")):
            raise ValueError("'about' has no labels and errors")
        return self

    def confidence(self, answer: AnswerFeatures) -> float | None:
        """Return the probability that the answer is right; None without a value."""
        return self.curve.of(self.score.of(answer)) if answer.status == "value" else None

    @cached_property
    def hash(self) -> str:
        """Short hash of the whole content."""
        return content_hash(self._plain())

    def _plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.catalogs else {"catalogs"})

    @classmethod
    def from_dict(cls, data: Any, place: str) -> Calibration:
        """Invert `model_dump`. Raises `UsageError`, naming `place`, for other data or another version."""
        if not isinstance(data, dict) or "format" not in data:
            raise UsageError(f"{place} is no calibration; `hpd evaluate RUN --calibrate` writes one")
        if data["format"] != 1 or data.get("thresholds") != list(THRESHOLDS):
            raise UsageError(
                f"{place} was written by another version of this project; learn it anew: hpd evaluate RUN --calibrate"
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise UsageError(f"{place} is damaged ({reason}); learn it anew: hpd evaluate RUN --calibrate") from error

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
        parts = self._plain().items()
        lines = (f"{json.dumps(key)}: {json.dumps(part, ensure_ascii=False)}" for key, part in parts)
        return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


LEVEL = 0.05
"""Probability that a promise does not hold."""


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
