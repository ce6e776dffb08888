"""What the user can put right: these errors are shown as one message, never as a stack trace."""

from __future__ import annotations


class UsageError(Exception):
    """Wrong configuration, input or output folder. The command exits with 2 and prints the message."""


class RunError(Exception):
    """The run stopped before its end for an outside reason; a rerun continues it. The command exits with 1."""


class BudgetError(RunError):
    """The run has cost what it may cost; with a larger budget, a rerun continues it. The command exits with 4."""


class ProcessesDiedError(RunError):
    """Ray gave up on processes that died again and again."""
