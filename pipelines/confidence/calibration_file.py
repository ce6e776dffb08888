"""Calibration learned from labelled answers of one model, as a plain JSON file beside its adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from hpd_core.types import content_hash
from pipelines.confidence.answer_features import AnswerFeatures
from pipelines.confidence.curves import Curve, curve_from_dict
from pipelines.confidence.precision_bounds import Taken
from pipelines.confidence.score import Score
from pipelines.errors import UsageError
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
    "answer_threshold",
)


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """The model whose answers were labelled, and its decoding settings.

    Attributes:
        prompt_hash: hash of the prompt around the document; attributes have their own weights.
        decoding, layout, quantization, max_scored_tokens, document_attention, strings, answer_threshold: as in an
            engine's description; `NOT_SAID` agrees with all.
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
    answer_threshold: float | str | None = None  # there was none before

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> CalibratedModel:
        """Build from an engine's description, or from a table row, which lacks some of the settings."""
        if "decoding" in row:
            row = {"answer_threshold": None, **row}  # a description of before there was one
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
            raise UsageError(f"{place} is no calibration; `hpd calibrate` writes one")
        if data["format"] != _FORMAT or data.get("thresholds") != list(THRESHOLDS):
            raise UsageError(f"{place} was written by another version of this project; learn it anew: hpd calibrate")
        try:
            attributes = {
                category: {name: _attribute(entry) for name, entry in entries.items()}
                for category, entries in data["attributes"].items()
            }
            score, curve = Score.from_dict(data["score"]), curve_from_dict(data["curve"])
            return cls(CalibratedModel(**data["model"]), score, curve, attributes, _about(data["about"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UsageError(
                f"{place} is damaged ({type(error).__name__}: {error}); learn it anew: hpd calibrate"
            ) from error

    @classmethod
    def read(cls, uri: str) -> Calibration:
        """Read the calibration in a local file or at any fsspec URI. Raises `UsageError` if there is none."""
        try:
            filesystem, path = open_filesystem(uri)
            content: bytes = filesystem.cat_file(path)
            data = json.loads(content)
        except FileNotFoundError as error:
            raise UsageError(f"there is no calibration {uri}; `hpd calibrate` learns one") from error
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
