"""What a worker says to the driver beside lines for the user.

The queue between them reads every message: what is imported here, it imports too, before anybody hears anything.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Begins:
    """What a worker is at before its first step."""

    what: str


@dataclass(frozen=True, slots=True)
class TrainingRuns:
    """From here on there is something to keep."""
