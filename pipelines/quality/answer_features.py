"""Features of an answer that predict whether it is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hpd_core import Attribute
from hpd_core.types import content_hash

NOWHERE = "nowhere"
"""Kind of match of an item that stands nowhere in the text."""

# From the best to the worst.
_MATCHES = ("exact", "equal number", "folded", "fuzzy", "ambiguous", NOWHERE)


@dataclass(frozen=True, slots=True)
class AnswerFeatures:
    """Features of one answer: all items of an attribute of a product.

    Attributes:
        choice: as in the attribute table; None for open answers.
        probability: the model's own, of the whole answer.
        margin: for a scored answer, its log probability minus the next one's.
        text: its items joined by "; "; None without a value.
        evidence_kinds: each item's best match in the product's text, or `NOWHERE`; empty without a value.
        norm_status: status of the worst normalised item; None if nothing was normalised.
    """

    category: str
    attribute: str
    type: str
    status: str
    choice: str | None
    probability: float | None
    margin: float | None
    logprob_mean: float | None
    logprob_min: float | None
    num_tokens: int
    text: str | None
    evidence_kinds: tuple[str, ...]
    norm_status: str | None

    @property
    def worst_evidence(self) -> str:
        """Match kind of the worst grounded item; `NOWHERE` without items."""
        return max(self.evidence_kinds, key=_MATCHES.index, default=NOWHERE)


def features_of(row: Mapping[str, Any], attribute: Attribute, *further: Mapping[str, Any]) -> AnswerFeatures:
    """Compute the features of an answer from its rows of the attribute table.

    Args:
        row: the row of `value_index` 0, with its category.
        further: rows of the answer's other items.
    """
    rows = (row, *further)
    is_value = row["status"] == "value"
    probability = row.get("probability")
    return AnswerFeatures(
        category=row["category"],
        attribute=row["attribute"],
        type=attribute.type,
        status=row["status"],
        choice=row.get("choice"),
        probability=answer_probability(row["num_tokens"], row["logprob_mean"]) if probability is None else probability,
        margin=row.get("margin"),
        logprob_mean=row["logprob_mean"],
        logprob_min=row["logprob_min"],
        num_tokens=row["num_tokens"] or 0,
        text="; ".join(each["value_raw"] or "" for each in rows) if is_value else None,
        evidence_kinds=tuple(_best_match(each["evidence"]) for each in rows) if is_value else (),
        norm_status=_worst_norm([each.get("norm_status") for each in rows]),
    )


def definition_of(attribute: Attribute) -> str:
    """Hash everything that the model reads of an attribute, and whether it is copied.

    What labels show of one attribute does not hold for another of the same name.
    """
    data = attribute.model_dump(mode="json", include={"name", "description", "type", "unit", "multiple"})
    copied = {"verbatim": True} if attribute.verbatim else {}
    return content_hash({**data, **copied, "labels": attribute.labels})


def answer_probability(num_tokens: int | None, logprob_mean: float | None) -> float | None:
    """Return the model's probability of an answer as a whole: the product of its tokens' probabilities."""
    if num_tokens is None or logprob_mean is None or math.isnan(logprob_mean):
        return None
    return math.exp(num_tokens * logprob_mean)


def _best_match(places: Sequence[Mapping[str, Any]] | None) -> str:
    return min((place["match"] for place in places or ()), key=_MATCHES.index, default=NOWHERE)


def _worst_norm(statuses: Sequence[str | None]) -> str | None:
    found = [status for status in statuses if status is not None]
    return next((status for status in found if status != "ok"), "ok" if found else None)


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """A model's value, judged.

    Attributes:
        product: identity of its product; answers of one product are never on both sides of a split.
        definition: hash of the attribute (`definition_of`).
    """

    product: str
    definition: str
    answer: AnswerFeatures
    is_right: bool

    @property
    def pair(self) -> tuple[str, str]:
        """Category and attribute."""
        return self.answer.category, self.answer.attribute

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "product": self.product,
            "is_right": self.is_right,
            "definition": self.definition,
            **asdict(self.answer),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LabelledAnswer:
        """Invert `to_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("product", "definition", "is_right")}
        kinds = tuple(rest.pop("evidence_kinds"))
        return cls(data["product"], data["definition"], AnswerFeatures(**rest, evidence_kinds=kinds), data["is_right"])


_LEAST, _MOST = 1e-6, 1 - 1e-6
_LEAST_LOGPROB = -15.0
_MOST_MARGIN = 12.0

NUMBERS = (
    *("log_odds", "log_odds_of_choice", "margin", "logprob_mean", "logprob_min"),
    *("log_tokens", "log_length", "log_items", "is_grounded"),
)
"""Numeric features, in the order of `numbers_of`."""

KINDS = ("type", "choice", "evidence", "norm_status", "attribute")
"""Categorical features, in the order of `kinds_of`. An attribute of a category is one more."""


def numbers_of(answer: AnswerFeatures) -> tuple[float, ...]:
    """Return the numeric features. An unknown value is 0, or the lowest value distinguished."""
    probability = min(_MOST, max(_LEAST, answer.probability or 0.0))
    log_odds = math.log(probability / (1 - probability))
    return (
        log_odds,
        # A share among few answers is another thing than the probability of a text among all texts.
        log_odds if answer.choice in ("scored", "beam") else 0.0,
        _margin(answer.margin),
        _logprob(answer.logprob_mean),
        _logprob(answer.logprob_min),
        math.log1p(answer.num_tokens),
        math.log1p(len(answer.text or "")),
        math.log(max(1, len(answer.evidence_kinds))),
        float(answer.worst_evidence != NOWHERE),
    )


def _margin(value: float | None) -> float:
    return 0.0 if value is None or math.isnan(value) else min(_MOST_MARGIN, value)


def _logprob(value: float | None) -> float:
    return _LEAST_LOGPROB if value is None or math.isnan(value) else max(_LEAST_LOGPROB, value)


def kinds_of(answer: AnswerFeatures) -> tuple[str, ...]:
    """Return the categorical features."""
    return (
        answer.type,
        answer.choice or "open",
        answer.worst_evidence,
        answer.norm_status or "none",
        answer.attribute,
    )


@dataclass(frozen=True, slots=True)
class Score:
    """Weights of the features; features unseen in learning have none.

    Attributes:
        numbers: weights, one for each of `NUMBERS`.
        kinds: weights by name of `KINDS`, one for each kind.
        attributes: weights by category, one for each of its attributes.
    """

    intercept: float
    numbers: tuple[float, ...]
    kinds: Mapping[str, Mapping[str, float]]
    attributes: Mapping[str, Mapping[str, float]]
    _of_kind: tuple[Mapping[str, float], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_of_kind", tuple(self.kinds[name] for name in KINDS))

    def of(self, answer: AnswerFeatures) -> float:
        """Return the answer's score."""
        total = self.intercept
        for weight, number in zip(self.numbers, numbers_of(answer), strict=True):
            total += weight * number
        for weights, kind in zip(self._of_kind, kinds_of(answer), strict=True):
            total += weights.get(kind, 0.0)
        of_category = self.attributes.get(answer.category)
        return total + of_category.get(answer.attribute, 0.0) if of_category is not None else total

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        numbers = dict(zip(NUMBERS, self.numbers, strict=True))
        return {
            "intercept": self.intercept,
            "numbers": numbers,
            "kinds": {name: dict(self.kinds[name]) for name in KINDS},
            "attributes": {category: dict(weights) for category, weights in self.attributes.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Score:
        """Invert `to_dict`. Raises `KeyError`, `TypeError` or `ValueError` for data that are not a score's."""
        return cls(
            _weight(data["intercept"]),
            tuple(_weight(data["numbers"][name]) for name in NUMBERS),
            {name: _weights(data["kinds"][name]) for name in KINDS},
            {category: _weights(weights) for category, weights in data["attributes"].items()},
        )


def _weights(data: Mapping[str, Any]) -> dict[str, float]:
    return {name: _weight(weight) for name, weight in data.items()}


def _weight(data: Any) -> float:
    weight = float(data)
    if not math.isfinite(weight):
        raise ValueError("a weight is not finite")
    return weight


_NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Values with a probability in [low, high), or [low, 1]."""

    low: float
    high: float
    count: int
    mean_confidence: float
    share_right: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability curve.

    Attributes:
        ece: expected calibration error: mean distance between share of right values and mean probability, over the
            values.
        bins: ten of equal width; those without values are left out.
    """

    ece: float
    bins: tuple[ReliabilityBin, ...]


def reliability(pairs: Iterable[tuple[float, bool]]) -> Reliability | None:
    """Compute the curve from (probability, is right) pairs; None without pairs."""
    known = list(pairs)
    if not known:
        return None
    bins = []
    edges = [number / _NUM_BINS for number in range(_NUM_BINS + 1)]
    for low, high in itertools.pairwise(edges):
        inside = [pair for pair in known if low <= pair[0] and (pair[0] < high or high == 1)]
        if inside:
            mean = sum(probability for probability, _ in inside) / len(inside)
            right = sum(is_right for _, is_right in inside) / len(inside)
            bins.append(ReliabilityBin(low, high, len(inside), mean, right))
    ece = sum(each.count * abs(each.mean_confidence - each.share_right) for each in bins) / len(known)
    return Reliability(ece, tuple(bins))
