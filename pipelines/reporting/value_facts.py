"""Facts about the answers, by attribute and by category: how many can be accepted."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.quality.scoring import Estimate, Reliability


@dataclass(frozen=True, slots=True)
class ReportVerdict:
    """Verdict on the run's answers: how many can be accepted.

    Attributes:
        headline, advice: the verdict in a sentence, and what to do about it.
        values, absent, failed: numbers of answers; `values` counts answers with one value or several.
        accepted, review: numbers of values, and of answers of any status, by decision; None if no precision was
            requested.
        precision: target precision of the accepted values.
        certain: number of values with a certainty of at least `certain_from`; None if no value has one.
        expected_right: number of right values that the calibration expects; None without a calibration.
        corrected: number of answers that a person gave.
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
        """Share of answers that have a value."""
        answers = self.values + self.absent + self.failed
        return self.values / answers if answers else None


@dataclass(frozen=True, slots=True)
class AttributeFacts:
    """Counts and scores of the answers for one attribute, in one category or over all that have it.

    Attributes:
        category: name of the category; None for the sum over all `num_categories`.
        values, absent, failed: numbers of answers; `values` counts answers with one value or several.
        accepted, review: as in `ReportVerdict`.
        certain: number of values that are likely right, as in `ReportVerdict`.
        num_labels: number of labelled answers. `precision`, `recall` and `f1` are exact-match scores on them; None
            without labels.
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
        """Number of all answers."""
        return self.values + self.absent + self.failed

    @property
    def fill_rate(self) -> float | None:
        """Share of answers that have a value."""
        return self.values / self.answers if self.answers else None


@dataclass(frozen=True, slots=True)
class CategoryFacts:
    """Facts about one category. `engine_seconds` is None if the run did not count them by product.

    Attributes:
        share: share of all products' engine seconds.
        usd: dollars for computing, each shard at its own price, without loading, waiting and failed tries. None if no
            product of the category is in a shard with a price.
        priced: number of products decoded in shards with a price.
        values: number of answers with one value or several; `doubtful` and `ungrounded` are subsets of them.
        accepted, review: as in `ReportVerdict`.
        doubtful: number of values with a certainty below one half; None if no value has a certainty.
        ungrounded: number of answers with an item that is found nowhere in the text. Truth values are conclusions, so
            they do not count. None if no value was looked for.
        f1: exact-match F1 against gold.
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
        """Share of answers that have a value."""
        answers = self.values + self.absent + self.failed
        return self.values / answers if answers else None

    @property
    def usd_per_1k(self) -> float | None:
        """Dollars for computing a thousand of its decoded products."""
        return self.usd / self.priced * 1000 if self.usd is not None and self.priced else None

    @property
    def seconds_per_1k(self) -> float | None:
        """Engine seconds for a thousand of its products."""
        seconds = self.engine_seconds
        return seconds / self.decoded * 1000 if seconds is not None and self.decoded else None


@dataclass(frozen=True, slots=True)
class ReportQuality:
    """Scores against gold, exact match.

    Attributes:
        reliability: reliability of the labelled values' `reliability_of`: confidence, or probability without a
            calibration. None if no value has one.
        ece_of_probability: expected calibration error of the model's own probability.
    """

    gold: str
    num_products: int
    num_labels: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    hallucination_rate: float | None
    reliability: Reliability | None
    reliability_of: str
    ece_of_probability: float | None
