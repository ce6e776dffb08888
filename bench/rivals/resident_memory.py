"""Resident memory of a process, and its peak, which only grows until it is reset, by the kernel's account (proc(5))."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

PROC = Path("/proc")


def reset_peak(process: int | Literal["self"]) -> bool:
    """Sets the peak back to what is held now. False where that cannot be, as outside of Linux."""
    try:
        (PROC / str(process) / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def status(process: int | Literal["self"], name: Literal["VmRSS", "VmHWM"]) -> int:
    """Bytes held now, or at the peak: of a line like `VmHWM:   1234 kB`."""
    path = PROC / str(process) / "status"
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no {name}")
