"""Dead-lettered rows, by reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeadExample:
    """A dead-lettered row, cut to a readable length."""

    place: str
    product_id: str | None
    category: str | None
    message: str
    row: str | None


@dataclass(frozen=True, slots=True)
class DeadReason:
    """Dead letters of one error code.

    Attributes:
        messages: the most frequent messages, each with its number of rows. Only those that several rows share, or that
            name a category.
    """

    code: str
    stage: str
    count: int
    share: float
    messages: tuple[tuple[str, int], ...]
    examples: tuple[DeadExample, ...]
