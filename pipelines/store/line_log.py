"""Local log file to which one process at a time appends lines; a last line torn by a kill is truncated."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError


def open_log(path: Path) -> Any:
    """Open the file for reading and appending, locked while it is open; create it if needed.

    Raise `UsageError` if another process holds the lock, `OSError` if it cannot be written.
    """
    file = open(path, "ab+")  # noqa: SIM115 - held open, and locked, as long as the job runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UsageError(f"{path} is being written by another process") from error
    return file


def whole_lines(file: Any) -> Iterator[bytes]:
    """Yield the lines of a log; truncate a last one without line end, which a kill left half-written."""
    file.seek(0)
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            file.truncate(end)
            break
        end += len(line)
        yield line
    file.seek(0, os.SEEK_END)
