"""The answers: what may be taken of them, by attribute and by category."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReportVerdict:
    """What may be taken of the run's answers.

    Attributes:
        headline, advice: in a sentence, and what to do with it.
        values, absent, failed: answers; `values` have one value or several.
        accepted, review: values, and answers of any status, by their decision; None if no precision was asked for.
        precision: that the accepted values are promised to have.
        certain: values with a certainty of at least `certain_from`; None if no value has one.
        expected_right: right values, as the calibration expects; None without one.
        corrected: answers that a person gave.
    """

    headline: str
    advice: str
    values: int
    absent: int
    failed: int
    accepted: int | None
    review: int | None
    precision: float | None
    certain: int | None
    certain_from: float
    expected_right: float | None
    corrected: int

    @property
    def fill_rate(self) -> float | None:
        """Answers with a value, by all answers."""
        answers = self.values + self.absent + self.failed
        return self.values / answers if answers else None


@dataclass(frozen=True, slots=True)
class AttributeFacts:
    """The answers for one attribute: of one category, or of all that have it.

    Attributes:
        category: None: all `num_categories` of them.
        values, absent, failed: answers; `values` have one value or several.
        accepted, review: as in `ReportVerdict`.
        certain: values that are likely right, as in `ReportVerdict`.
        num_labels: labelled answers; `precision`, `recall` and `f1` are of them, exact, None without.
    """

    attribute: str
    category: str | None
    num_categories: int
    values: int
    absent: int
    failed: int
    accepted: int | None
    review: int | None
    certain: int | None
    num_labels: int = 0
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None

    @property
    def answers(self) -> int:
        """All of them."""
        return self.values + self.absent + self.failed

    @property
    def fill_rate(self) -> float | None:
        """Answers with a value, by all answers."""
        return self.values / self.answers if self.answers else None


@dataclass(frozen=True, slots=True)
class CategoryFacts:
    """One category. `engine_seconds` is None if the run did not count them by product.

    Attributes:
        share: of all products' engine seconds.
        usd: its part of what was paid for computing (loading, waiting and failed tries are apart), each shard at its
            own price; None if none of its products is in a shard with a price.
        priced: products decoded in shards with a price.
        values: answers with a value, be it one or several; `doubtful` and `ungrounded` are some of them.
        accepted, review: as in `ReportVerdict`.
        doubtful: those with a certainty below one half; None if none of them has one.
        ungrounded: those of which an item stands nowhere in the text (truth values are conclusions); None if no value
            was looked for.
        f1: against gold, exact.
    """

    category: str
    products: int
    decoded: int
    dead_letters: int
    engine_seconds: float | None
    share: float | None
    usd: float | None
    priced: int
    values: int
    absent: int
    failed: int
    doubtful: int | None
    ungrounded: int | None
    accepted: int | None = None
    review: int | None = None
    f1: float | None = None

    @property
    def fill_rate(self) -> float | None:
        """Answers with a value, by all answers."""
        answers = self.values + self.absent + self.failed
        return self.values / answers if answers else None

    @property
    def usd_per_1k(self) -> float | None:
        """For computing a thousand of its decoded products."""
        return self.usd / self.priced * 1000 if self.usd is not None and self.priced else None

    @property
    def seconds_per_1k(self) -> float | None:
        """Engine seconds for a thousand of its products."""
        seconds = self.engine_seconds
        return seconds / self.decoded * 1000 if seconds is not None and self.decoded else None
