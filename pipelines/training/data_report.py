"""Report on the data read for a training, and on labels and products that are not taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_MAX_EXAMPLES = 3


@dataclass
class DataReport:
    """Counts of all data read, examples of labels that are not taught, and notes on the catalogs' files."""

    products: int = 0
    values: int = 0
    absent: int = 0
    assumed_absent: int = 0
    unlabelled_not_taught: int = 0
    corrections: int = 0
    corrections_weight: int = 1
    not_taught: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, example: str) -> None:
        """Count one label or product that is not taught."""
        self.not_taught[reason] += 1
        self.examples.setdefault(reason, [])
        if len(self.examples[reason]) < _MAX_EXAMPLES:
            self.examples[reason].append(example)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for the user."""
        yield (
            f"{self.products:,} products; taught: {self.values:,} values, {self.absent:,} labelled absent, "
            f"{self.assumed_absent:,} unlabelled and taken for absent; {self.unlabelled_not_taught:,} unlabelled ones "
            f"are not taught"
        )
        if self.corrections:
            yield (
                f"answers in which people corrected a model, each taught {self.corrections_weight} times in an epoch: "
                f"{self.corrections:,}"
            )
        yield from self._left_out()
        yield from self.notes

    def nothing_to_train_on(self) -> str:
        """Return the text of an error: everything was left out, and why."""
        return "\n  ".join(["the datasets hold nothing to train on", *self._left_out()])

    def _left_out(self) -> Iterator[str]:
        for reason, number in self.not_taught.most_common():
            yield f"left out, {reason}: {number:,} (e.g. {'; '.join(self.examples[reason])})"
