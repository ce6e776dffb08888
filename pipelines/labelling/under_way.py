"""What a teacher was asked and has not answered yet, and since when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class OpenQuestion:
    """One of them. `sent_at`: None as long as it only waits for its turn."""

    def __init__(self) -> None:
        self.sent_at: float | None = None

    def sent(self) -> None:
        """It is on its way; sent again, it is as old as before."""
        if self.sent_at is None:
            self.sent_at = time.monotonic()


class UnderWay:
    """All of them."""

    def __init__(self) -> None:
        self._questions: list[OpenQuestion] = []

    @contextmanager
    def question(self) -> Iterator[OpenQuestion]:
        """One that is answered, or given up, when the block ends."""
        question = OpenQuestion()
        self._questions.append(question)
        try:
            yield question
        finally:
            self._questions.remove(question)

    def describe(self) -> str:
        """For a progress line: how many, and how old the oldest is."""
        sent = [question.sent_at for question in self._questions if question.sent_at is not None]
        waiting = len(self._questions) - len(sent)
        waits = f", {waiting:,} waiting for their turn" if waiting else ""
        if not sent:
            return f"no request under way{waits}"
        age = time.monotonic() - min(sent)
        return f"{len(sent):,} request{'s' if len(sent) > 1 else ''} under way, the oldest for {age:,.0f} s{waits}"
