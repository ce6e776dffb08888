"""The answers by category."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CategoryFacts:
    """One category. `engine_seconds` is None if the run did not count them by product.

    Attributes:
        share: of all products' engine seconds.
        usd: its part of what was paid for computing (loading, waiting and failed tries are apart), each shard at its
            own price; None if none of its products is in a shard with a price.
        priced: products decoded in shards with a price.
        values: answers with a value, be it one or several; `doubtful` and `ungrounded` are some of them.
        doubtful: those that the model gave a probability below one half; None if it gave none to any.
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
    f1: float | None = None

    @property
    def usd_per_1k(self) -> float | None:
        """For computing a thousand of its decoded products."""
        return self.usd / self.priced * 1000 if self.usd is not None and self.priced else None

    @property
    def seconds_per_1k(self) -> float | None:
        """Engine seconds for a thousand of its products."""
        seconds = self.engine_seconds
        return seconds / self.decoded * 1000 if seconds is not None and self.decoded else None
