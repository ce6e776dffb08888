"""How much memory a run takes at its peak above what stands before it: the model, as a rule.

A process's peak only ever grows, so it is set back before each run: on a GPU torch's counter, on Linux the kernel's
(`clear_refs`, proc(5)).
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

import torch

Result = TypeVar("Result")


def measure(run: Callable[[], Result], device: torch.device) -> tuple[Result, int | None]:
    """Return the result of `run`, and its bytes at the peak above what was there; None where no peak can be set back.

    Memory that earlier runs have left behind is given back first, as far as it can be.
    """
    gc.collect()
    # glibc keeps what is freed; without it the next run would seem to need less than it does.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = run()
        return result, max(0, torch.cuda.max_memory_allocated(device) - before)
    if not reset_peak("self"):
        return run(), None
    before = status("self", "VmRSS")
    result = run()
    return result, max(0, status("self", "VmHWM") - before)


def reset_peak(process: int | Literal["self"]) -> bool:
    """Set a process's peak back to what it holds now. Return False where that cannot be, as outside of Linux."""
    try:
        Path(f"/proc/{process}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def status(process: int | Literal["self"], name: Literal["VmRSS", "VmHWM"]) -> int:
    """Return the bytes held now, or at the peak, from a line like `VmHWM:   1234 kB`."""
    path = Path(f"/proc/{process}/status")
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no {name}")
