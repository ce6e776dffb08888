"""Questions that a teacher has not answered yet, and since when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class OpenQuestion:
    """A question in progress. `sent_at`: None while it waits for its turn."""

    def __init__(self) -> None:
        self.sent_at: float | None = None

    def sent(self) -> None:
        """Record the time of sending; a retry keeps the first time."""
        if self.sent_at is None:
            self.sent_at = time.monotonic()


class UnderWay:
    """All questions in progress."""

    def __init__(self) -> None:
        self._questions: list[OpenQuestion] = []

    @contextmanager
    def question(self) -> Iterator[OpenQuestion]:
        """Register a question until the block ends."""
        question = OpenQuestion()
        self._questions.append(question)
        try:
            yield question
        finally:
            self._questions.remove(question)

    def describe(self) -> str:
        """Return text for a progress line: how many requests are in progress, and the age of the oldest."""
        sent = [question.sent_at for question in self._questions if question.sent_at is not None]
        waiting = len(self._questions) - len(sent)
        waits = f", {waiting:,} waiting for their turn" if waiting else ""
        if not sent:
            return f"no request under way{waits}"
        age = time.monotonic() - min(sent)
        return f"{len(sent):,} request{'s' if len(sent) > 1 else ''} under way, the oldest for {age:,.0f} s{waits}"
