"""Sampled products to look at."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.job.source_texts import TextSegment


@dataclass(frozen=True, slots=True)
class TextPlace:
    """Location of a value: code points [start, end) of the field."""

    field: str
    start: int
    end: int
    match: str


@dataclass(frozen=True, slots=True)
class ReplacedAnswer:
    """An answer that another one replaced. `source`: model or review; `text`: None if it is not a value."""

    source: str
    model: str | None
    status: str
    text: str | None
    probability: float | None


@dataclass(frozen=True, slots=True)
class SampledValue:
    """An answer for one attribute, or one item of an answer with several.

    Attributes:
        text: the value, or the model's output if that is not a value; None if the answer is "not stated".
        probability: the model's own, of the whole answer.
        confidence: the probability that it is right, learned from labelled products; None without a calibration.
        decision: accept or review; None if no precision was requested.
        source: model or review; None in older runs.
        normal: the value in the attribute's own form, with its unit; None if it has none.
        norm_status: reason for no such form: ambiguous, conflict, no_rule.
        value_id: id of the vocabulary's member.
        replaced: earlier answers, oldest first.
        places: locations in the text. None if nothing is looked for (no value, or a truth value, which is a
            conclusion).
        gold: the right answer, None without a label; `is_right` likewise.
    """

    attribute: str
    text: str | None
    status: str
    probability: float | None
    places: tuple[TextPlace, ...] | None
    confidence: float | None = None
    decision: str | None = None
    source: str | None = None
    normal: str | None = None
    norm_status: str | None = None
    value_id: str | None = None
    replaced: tuple[ReplacedAnswer, ...] = ()
    gold: str | None = None
    is_right: bool | None = None

    @property
    def certainty(self) -> float | None:
        """Probability that it is right: the confidence, else the model's own one. None for a person's answer."""
        if self.source == "review":
            return None
        return self.confidence if self.confidence is not None else self.probability

    @property
    def is_ungrounded(self) -> bool:
        """Whether it is a value that stands nowhere in the text."""
        return self.places == ()


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field of a product as the model read it, cut into segments."""

    name: str
    segments: tuple[TextSegment, ...]


@dataclass(frozen=True, slots=True)
class SampledProduct:
    """A product to look at.

    Attributes:
        why: reason for the draw: least certain, ungrounded, failed, random.
        lowest: the lowest certainty among its values; None if no value has one.
        values: its values, least certain first; answers that are not stated come last.
        fields: texts by field; None if its text could not be read back.
    """

    source_file: str
    source_row: int
    product_id: str
    category: str
    why: str
    lowest: float | None
    values: tuple[SampledValue, ...]
    fields: tuple[FieldText, ...] | None

    @property
    def num_ungrounded(self) -> int:
        """Number of answers with an item that stands nowhere in the text."""
        return len({value.attribute for value in self.values if value.is_ungrounded})

    @property
    def num_wrong(self) -> int:
        """Number of answers that are wrong by gold."""
        return len({value.attribute for value in self.values if value.is_right is False})

    @property
    def num_review(self) -> int:
        """Number of answers that need a review."""
        return len({value.attribute for value in self.values if value.decision == "review"})

    @property
    def num_failed(self) -> int:
        """Number of answers that are neither a value nor "not stated"."""
        return sum(value.status not in ("value", "absent") for value in self.values)


@dataclass(frozen=True, slots=True)
class ReportSample:
    """Products to look at, and the size and seed of their draw."""

    seed: int
    size: int
    products: tuple[SampledProduct, ...]
