"""What the user can put right: these errors are shown as one message, never as a stack trace."""

from __future__ import annotations

from collections.abc import Iterator

from hpd_core.errors import HPDError


class UsageError(Exception):
    """Wrong configuration, input or output folder. The command exits with 2 and prints the message."""


class RunError(Exception):
    """The run stopped before its end for an outside reason; a rerun continues it. The command exits with 1."""


class BudgetError(RunError):
    """The run has cost what it may cost; with a larger budget, a rerun continues it. The command exits with 4."""


class ProcessesDiedError(RunError):
    """Ray gave up on processes that died again and again."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what caused it, through Ray's wrapping, which has it as `cause`."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        wrapped = getattr(cause, "cause", None)
        cause = wrapped if isinstance(wrapped, BaseException) else cause.__cause__


def for_user(error: BaseException) -> UsageError | RunError | None:
    """Return what to show in place of this one error, whatever caused it; None if it is a bug of ours."""
    if isinstance(error, (UsageError, RunError)):
        return error
    if isinstance(error, HPDError) or (isinstance(error, OSError) and error.errno is not None):
        return RunError(str(error))  # a full disk, no permission, no network
    return None


def explain(error: BaseException) -> Exception | None:
    """Return the `UsageError` or `RunError` to show in place of `error`; None if it is a bug of ours."""
    return next(filter(None, map(for_user, causes(error))), None)
