"""Features of an answer that predict whether it is right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from hpd_core import Attribute

NOWHERE = "nowhere"
"""Kind of match of an item that stands nowhere in the text."""

# From the best to the worst.
_MATCHES = ("exact", "equal number", "folded", "fuzzy", "ambiguous", NOWHERE)


@dataclass(frozen=True, slots=True)
class AnswerFeatures:
    """Features of one answer: all items of an attribute of a product.

    Attributes:
        probability: the model's own, of the whole answer.
        text: its items joined by "; "; None without a value.
        numbers: numeric features, in the order of `NUMBERS`. An unknown value is 0, or the lowest value distinguished.
        kinds: categorical features, in the order of `KINDS`.
    """

    category: str
    attribute: str
    status: str
    probability: float | None
    text: str | None
    numbers: tuple[float, ...]
    kinds: tuple[str, ...]


def features_of(row: Mapping[str, Any], attribute: Attribute, *further: Mapping[str, Any]) -> AnswerFeatures:
    """Compute the features of an answer from its rows of the attribute table.

    Args:
        row: the row of `value_index` 0, with its category.
        further: rows of the answer's other items.
    """
    rows = (row, *further) if row["status"] == "value" else ()
    probability, choice = answer_probability(row), row.get("choice")
    text = "; ".join(each["value_raw"] or "" for each in rows)
    evidence = max((_best_match(each["evidence"]) for each in rows), key=_MATCHES.index, default=NOWHERE)
    share = min(_MOST, max(_LEAST, probability or 0.0))
    log_odds = math.log(share / (1 - share))
    numbers = (
        log_odds,
        # A share among few answers is another thing than the probability of a text among all texts.
        log_odds if choice in ("scored", "beam") else 0.0,
        _margin(row.get("margin")),
        _logprob(row["logprob_mean"]),
        _logprob(row["logprob_min"]),
        math.log1p(row["num_tokens"] or 0),
        math.log1p(len(text)),
        math.log(max(1, len(rows))),
        float(evidence != NOWHERE),
    )
    norm = _worst_norm([each.get("norm_status") for each in (row, *further)]) or "none"
    kinds = (attribute.type, choice or "open", evidence, norm, row["attribute"])
    return AnswerFeatures(
        row["category"], row["attribute"], row["status"], probability, text if rows else None, numbers, kinds
    )


def answer_probability(row: Mapping[str, Any]) -> float | None:
    """Return the model's probability of an answer as a whole, from its row; else the product of its tokens' own."""
    num_tokens, logprob_mean = row["num_tokens"], row["logprob_mean"]
    if (probability := row.get("probability")) is not None:
        return float(probability)
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
        definition: hash of the attribute (`Attribute.definition`).
        catalog: its catalog, if the calibration is for catalogs without labels; then answers of one catalog are never
            on both sides of a split either.
    """

    product: str
    definition: str
    answer: AnswerFeatures
    is_right: bool
    catalog: str | None = None

    @property
    def pair(self) -> tuple[str, str]:
        """Category and attribute."""
        return self.answer.category, self.answer.attribute


_LEAST, _MOST = 1e-6, 1 - 1e-6
_LEAST_LOGPROB = -15.0
_MOST_MARGIN = 12.0

NUMBERS = (
    *("log_odds", "log_odds_of_choice", "margin", "logprob_mean", "logprob_min"),
    *("log_tokens", "log_length", "log_items", "is_grounded"),
)
"""Numeric features."""

KINDS = ("type", "choice", "evidence", "norm_status", "attribute")
"""Categorical features. An attribute of a category is one more."""


def _margin(value: float | None) -> float:
    return 0.0 if value is None or math.isnan(value) else min(_MOST_MARGIN, value)


def _logprob(value: float | None) -> float:
    return _LEAST_LOGPROB if value is None or math.isnan(value) else max(_LEAST_LOGPROB, value)


class Kept(BaseModel):
    """A part of a calibration, as in its file."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")


class Score(Kept):
    """Weights of the features; features unseen in learning have none.

    Attributes:
        numbers: weights by name of `NUMBERS`.
        kinds: weights by name of `KINDS`, one for each kind.
        attributes: weights by category, one for each of its attributes.
    """

    intercept: float
    numbers: dict[str, float]
    kinds: dict[str, dict[str, float]]
    attributes: dict[str, dict[str, float]]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.numbers.keys() != set(NUMBERS) or self.kinds.keys() != set(KINDS):
            raise ValueError("a score has a weight of each feature")
        return self

    def of(self, answer: AnswerFeatures) -> float:
        """Return the answer's score."""
        total = self.intercept
        for name, number in zip(NUMBERS, answer.numbers, strict=True):
            total += self.numbers[name] * number
        for name, kind in zip(KINDS, answer.kinds, strict=True):
            total += self.kinds[name].get(kind, 0.0)
        return total + self.attributes.get(answer.category, {}).get(answer.attribute, 0.0)
