"""A local file that lines are appended to by one process at a time; what a kill tore off is cut off."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError


def open_log(path: Path) -> Any:
    """The file, open to be read and appended to, and locked as long as it is open; it is made if need be.

    Raises `UsageError` if another process has it, `OSError` if it cannot be written.
    """
    file = open(path, "ab+")  # noqa: SIM115 - held open, and locked, as long as the job runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UsageError(f"{path} is being written by another process") from error
    return file


def whole_lines(file: Any) -> Iterator[bytes]:
    """The lines of a log; a last one without its end is the half that a kill left behind, and is cut off."""
    file.seek(0)
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            file.truncate(end)
            break
        end += len(line)
        yield line
    file.seek(0, os.SEEK_END)
