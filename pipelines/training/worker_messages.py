"""Messages of a worker to the driver, besides lines for the user.

The queue's actor unpickles every message, so it imports all that this module imports before it delivers anything.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Begins:
    """Stage that a worker begins before its first step."""

    what: str


@dataclass(frozen=True, slots=True)
class TrainingRuns:
    """Begin of the training loop. From here on there is a state worth a checkpoint."""
