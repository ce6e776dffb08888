"""How much memory a run takes at its peak above what stands before it: the model, as a rule.

A process's peak only ever grows, so it is set back before each run: on a GPU torch's counter, on Linux the kernel's
(`clear_refs`, proc(5)).
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

from bench.rivals.resident_memory import reset_peak, status
from bench.speed.contenders import TimedRun

Result = TypeVar("Result")


def measure(run: Callable[[], Result], device: torch.device) -> tuple[Result, int | None]:
    """The result of `run`, and the bytes it took at its peak above what was there; None where no peak can be set back.

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


def measured(run: Callable[[], TimedRun], device: torch.device) -> TimedRun:
    """A contender's run, with its memory."""
    done, num_bytes = measure(run, device)
    return dataclasses.replace(done, peak_bytes=num_bytes)
