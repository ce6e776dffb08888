"""Rows that were given up, by reason."""

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
        messages: those that several rows have, or that name a category, with the number of rows; the most frequent.
    """

    code: str
    stage: str
    count: int
    share: float
    messages: tuple[tuple[str, int], ...]
    examples: tuple[DeadExample, ...]
