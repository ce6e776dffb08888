"""Errors that the user can fix: shown as one message, never as a stack trace."""

from __future__ import annotations

from collections.abc import Iterator

from hpd_core.errors import HPDError


class UsageError(Exception):
    """Raised for a wrong configuration, input or output folder. The command prints the message and exits with 2."""


class RunError(Exception):
    """Raised if an outside reason stops the run early; a rerun continues it. The command exits with 1."""


class BudgetError(RunError):
    """Raised if the run has reached its budget; a rerun with a larger one continues it. The command exits with 4."""


class ProcessesDiedError(RunError):
    """Raised if Ray gave up on processes that died repeatedly."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, also through Ray's wrapping, which keeps the cause in `cause`."""
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
