"""Products to look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPlace:
    """Where a value stands: code points [start, end) of the field."""

    field: str
    start: int
    end: int
    match: str


@dataclass(frozen=True, slots=True)
class ReplacedAnswer:
    """An answer whose place another one took. `source`: model or review; `text`: None where it is no value."""

    source: str
    model: str | None
    status: str
    text: str | None
    probability: float | None


@dataclass(frozen=True, slots=True)
class SampledValue:
    """An answer for one attribute, one item of it where there are several.

    Attributes:
        text: the value; what the model wrote where it is none; None where the answer is "not stated".
        probability: the model's own, of the whole answer.
        confidence: the probability that it is right, by labelled products; None without a calibration.
        decision: accept or review; None if no precision was asked for.
        source: model or review; None in older runs.
        normal: the value in the attribute's own form, with its unit; None if it has none.
        norm_status: why it has none: ambiguous, conflict, no_rule.
        value_id: of the vocabulary's member.
        replaced: earlier answers, the latest last.
        places: None where there is nothing to look for (no value, or a truth value, which is a conclusion).
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
        """How likely it is right: the confidence, or the model's own probability where there is none. A person's answer
        has neither.
        """
        if self.source == "review":
            return None
        return self.confidence if self.confidence is not None else self.probability

    @property
    def is_ungrounded(self) -> bool:
        """A value that stands nowhere in the text."""
        return self.places == ()


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A stretch of a field's text, and which of the product's values (by index) stand there, strictest match first.

    `omitted` counts characters that are left out here instead of shown.
    """

    text: str
    values: tuple[int, ...] = ()
    match: str | None = None
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field of a product as the model read it, cut into segments."""

    name: str
    segments: tuple[TextSegment, ...]


@dataclass(frozen=True, slots=True)
class SampledProduct:
    """A product to look at.

    Attributes:
        why: what it was drawn for: least certain, ungrounded, failed, random.
        lowest: the lowest certainty among its values; None if none has any.
        values: those the model is least sure of first; what is not stated comes last.
        fields: None if its text could not be read back.
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
        """Answers of which an item stands nowhere in the text."""
        return len({value.attribute for value in self.values if value.is_ungrounded})

    @property
    def num_wrong(self) -> int:
        """Answers that gold calls wrong."""
        return len({value.attribute for value in self.values if value.is_right is False})

    @property
    def num_review(self) -> int:
        """Answers that are not to be taken without a look."""
        return len({value.attribute for value in self.values if value.decision == "review"})

    @property
    def num_failed(self) -> int:
        """Answers that are neither a value nor "not stated"."""
        return sum(value.status not in ("value", "absent") for value in self.values)


@dataclass(frozen=True, slots=True)
class ReportSample:
    """Products to look at, and how they were drawn."""

    seed: int
    size: int
    products: tuple[SampledProduct, ...]
