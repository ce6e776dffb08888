"""Calibrations of a run and its rule for `accept` or `review`, stored in its output folder when it starts.

A resumed run uses these, even if files and settings have changed, so that one calibration decides all parts of a run.
`hpd evaluate RUN --apply` decides a finished run again, as a whole.

Decision which answers to accept at a precision, and which to review.

An attribute with enough labelled values has a threshold of its own, or none. The others share one. Its promise covers
all their accepted values together, in the mix that was labelled. An attribute without any label gets no promise. If
the calibration was learned from many catalogs for others, all attributes share one threshold, which must have held in
each of these catalogs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

from pydantic import TypeAdapter

from hpd_core import Attribute
from pipelines.errors import UsageError
from pipelines.quality.answer_features import features_of
from pipelines.quality.calibration_file import (
    THRESHOLDS,
    CalibratedModel,
    Calibration,
    LabelledAttribute,
    Taken,
    enough,
    lower_bound,
    lowest_passing,
)
from pipelines.store.folders import Folder
from pipelines.store.ledger import named_damage

CONFIDENCE_NAME = "_confidence.json"

Row = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class NamedCalibration:
    """A calibration and its place.

    `is_named`: the user named it, so that it must fit. `of_larger`: it is for the larger model of a cascade.
    """

    uri: str
    calibration: Calibration
    is_named: bool
    of_larger: bool = False

    def describe(self) -> dict[str, Any]:
        """Return its description for a run's manifest."""
        about = self.calibration.about
        return {
            "uri": self.uri,
            "hash": self.calibration.hash,
            "created_at": about.get("created_at"),
            "num_labelled": (about.get("labels") or {}).get("values"),
            "model_id": self.calibration.model.model_id,
            "model_revision": self.calibration.model.model_revision,
            "adapter_revision": self.calibration.model.adapter_revision,
            "ece": (about.get("ece") or {}).get("after"),
        }


@dataclass(frozen=True, slots=True)
class RunAcceptance:
    """Precision at which answers are accepted."""

    precision: float


@dataclass(frozen=True)
class RunConfidence:
    """The calibrations of a run, one for each of its models, and its acceptance rule.

    Attributes:
        calibrations: may be empty; an answer uses the first one of its model.
        accept: None if nothing is decided.
    """

    calibrations: tuple[NamedCalibration, ...] = ()
    accept: RunAcceptance | None = None

    @cached_property
    def _deciders(self) -> tuple[tuple[Calibration, Decider | None], ...]:
        accept = self.accept
        return tuple(
            (each.calibration, Decider(each.calibration, accept.precision) if accept else None)
            for each in self.calibrations
        )

    @cached_property
    def _known(self) -> dict[CalibratedModel, tuple[Calibration, Decider | None] | None]:
        return {}

    def fill(self, rows: Sequence[Row], category: str, attribute: Attribute, model: CalibratedModel) -> None:
        """Set `confidence` and `decision` in the rows of a model's answer. Others stay unchanged.

        Args:
            rows: rows of the attribute table, for all items of the answer.
            model: the model that gave the answer.
        """
        first = rows[0]
        if first.get("source") not in ("model", None):
            return
        confidence, decision = self.judge(rows, category, attribute, model)
        for row in rows:
            row["confidence"], row["decision"] = confidence, decision

    def judge(
        self, rows: Sequence[Mapping[str, Any]], category: str, attribute: Attribute, model: CalibratedModel
    ) -> tuple[float | None, str | None]:
        """Return the confidence and the decision of a model's answer; arguments as of `fill`."""
        status = rows[0]["status"]
        calibration, decider = self._of(model) or (None, None)
        confidence = None
        if calibration is not None and status == "value":
            confidence = calibration.confidence(features_of({**rows[0], "category": category}, attribute, *rows[1:]))
        if decider is not None:
            return confidence, decider.decide(category, attribute.name, status, confidence, attribute.definition)
        return confidence, None if self.accept is None or status == "absent" else "review"

    def _of(self, model: CalibratedModel) -> tuple[Calibration, Decider | None] | None:
        if model not in self._known:
            fitting = (pair for pair in self._deciders if not pair[0].model.differences(model))
            self._known[model] = next(fitting, None)
        return self._known[model]

    def check(self, model: CalibratedModel, *, of_larger: bool = False) -> None:
        """Raise `UsageError` if a named calibration is of another model.

        Args:
            of_larger: `model` is the larger one of a cascade.
        """
        for each in self.calibrations:
            if each.is_named and each.of_larger == of_larger and (found := each.calibration.model.differences(model)):
                raise UsageError(
                    f"calibration {each.uri} was learned from other answers than this run's: {'; '.join(found)}. "
                    "Learn one from a run of this model (hpd evaluate RUN --calibrate), or leave the setting out"
                )

    def notes(self, model: CalibratedModel) -> list[str]:
        """Return notes on answers of `model`: why they have no confidence, or are all for review."""
        if (known := self._of(model)) is not None:
            return [known[1].note_on_unseen()] if known[1] and known[0].catalogs else []
        found = [
            f"{each.uri} is not used, it was learned from other answers: "
            f"{'; '.join(each.calibration.model.differences(model))}"
            for each in self.calibrations
        ]
        if self.accept is not None:
            found.append(
                f"accept.precision is {self.accept.precision:g}, but there is no calibration of this model: all values "
                "are for review. `hpd evaluate RUN --calibrate` learns one from a finished run"
            )
        return found

    def describe(self) -> dict[str, Any]:
        """Return its description for a run's manifest: `calibration` is the first model's."""
        first, larger = (
            next((each for each in self.calibrations if each.of_larger == of_larger), None)
            for of_larger in (False, True)
        )
        found: dict[str, Any] = {"calibration": None if first is None else first.describe(), "accept": None}
        if larger is not None:
            found["calibration_of_larger_model"] = larger.describe()
        if self.accept is not None:
            decider = None if first is None else self._deciders[self.calibrations.index(first)][1]
            found["accept"] = decider.to_dict() if decider else {"precision": self.accept.precision}
        return found

    def to_json(self) -> bytes:
        """Encode the stored form."""
        return _STORED.dump_json(self)

    @classmethod
    def read(cls, folder: Folder) -> RunConfidence | None:
        """Read the run's; None if it stores none. Raises `UsageError` if it is damaged, or another version's."""
        with named_damage(folder, CONFIDENCE_NAME):
            try:
                return _STORED.validate_json(folder.read(CONFIDENCE_NAME))
            except FileNotFoundError:
                return None


_STORED = TypeAdapter(RunConfidence)


def run_confidence(folder: Folder) -> RunConfidence:
    """Return the calibrations of a run in progress, read once per process; none if the run stores none."""
    return _read_once(folder.absolute_uri)


def forget_confidence() -> None:
    """Clear this process's cache, so that stored confidences are read again."""
    _read_once.cache_clear()


@lru_cache(maxsize=8)
def _read_once(uri: str) -> RunConfidence:
    return RunConfidence.read(Folder(uri)) or RunConfidence()


Decision = Literal["accept", "review"]
Pair = tuple[str, str]

_TIMES_ENOUGH = 2
_MIN_CATALOGS = 5
_MIN_ACCEPTED = 10
"""Accepted values of a catalog; one with fewer is not tested, and does not count among `_MIN_CATALOGS`."""


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
        promises: promises by category and attribute; all others are for review, unless `unseen` is set.
        unseen: the promise of all attributes, if the calibration is for catalogs without labels.
    """

    calibration: Calibration
    precision: float
    promises: Mapping[Pair, Promise] = field(init=False)
    unseen: Promise | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "promises", dict(self._promises()))
        object.__setattr__(self, "unseen", self._unseen())

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
        own = self.promises.get((category, attribute))
        promise = own or self.unseen
        if status != "value" or confidence is None or promise is None:
            return "review"
        if own and definition not in (None, self.calibration.attributes[category][attribute].definition):
            return "review"
        return "accept" if confidence >= promise.confidence else "review"

    def note_on_unseen(self) -> str:
        """Return a note on what is accepted of a catalog without labels."""
        promised = "nothing can be promised: all values are for review"
        if self.unseen is not None:
            num, right = self.unseen.taken
            promised = (
                f"values are accepted from confidence {self.unseen.confidence:g}, where {right:,} of {num:,} values of "
                "other catalogs are right"
            )
        return (
            f"accept.precision is {self.precision:g}, and the calibration knows no label of this catalog: {promised}. "
            "For a promise of its own label 50 products: hpd review RUN --sample 50; hpd evaluate RUN --reviews --out F"
        )

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
            "unlabelled": self.unseen and {"confidence": self.unseen.confidence, **self.unseen.taken._asdict()},
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
        if (promise := self._promise(_together(each.taken for each in rare.values()), is_pooled=True)) is not None:
            yield from ((pair, promise) for pair in rare)

    def _unseen(self) -> Promise | None:
        """Return the lowest threshold that passes for all catalogs together and keeps `precision` in each, or None."""
        catalogs = self.calibration.catalogs.values()
        steps = _together(catalogs)
        lowest = lowest_passing(steps, self.precision)
        for place in reversed(range(0 if lowest is None else lowest + 1)):
            known = [each[place] for each in catalogs if each[place].num >= _MIN_ACCEPTED]
            is_kept = len(known) >= _MIN_CATALOGS and all(each.right >= self.precision * each.num for each in known)
            if is_kept and lower_bound(*steps[place]) >= self.precision:
                return Promise(THRESHOLDS[place], steps[place], is_pooled=True)
        return None

    def _promise(self, steps: tuple[Taken, ...], *, is_pooled: bool = False) -> Promise | None:
        place = lowest_passing(steps, self.precision)
        return None if place is None else Promise(THRESHOLDS[place], steps[place], is_pooled)


def _together(counts: Iterable[tuple[Taken, ...]]) -> tuple[Taken, ...]:
    columns = zip(*counts, strict=True)
    return tuple(Taken(sum(each.num for each in steps), sum(each.right for each in steps)) for steps in columns)
