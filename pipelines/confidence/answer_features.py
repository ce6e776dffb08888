"""Features of an answer that predict whether it is right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
