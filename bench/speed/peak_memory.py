"""How much memory a run takes at its peak above what stands before it: the model, as a rule.

A process's peak only ever grows, so it is set back before each run: on a GPU torch's counter, on Linux the kernel's
(`clear_refs`, proc(5)). Where neither can be, samples are taken, which may miss a short peak.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

import psutil
import torch

from bench.rivals.resident_memory import reset_peak, status
from bench.speed.contenders import TimedRun

Method = Literal["torch.cuda", "VmHWM", "samples"]
Result = TypeVar("Result")

_SECONDS_BETWEEN_SAMPLES = 0.005


def measure(run: Callable[[], Result], device: torch.device) -> tuple[Result, int, Method]:
    """The result of `run`, the bytes it took at its peak above what was there, and how they were measured.

    Memory that earlier runs have left behind is given back first, as far as it can be.
    """
    _tidy()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = run()
        return result, max(0, torch.cuda.max_memory_allocated(device) - before), "torch.cuda"
    if reset_peak("self"):
        before = status("self", "VmRSS")
        result = run()
        return result, max(0, status("self", "VmHWM") - before), "VmHWM"
    with _Sampler() as sampler:
        result = run()
    return result, max(0, sampler.peak - sampler.before), "samples"


def measured(run: Callable[[], TimedRun], device: torch.device) -> TimedRun:
    """A contender's run, with its memory."""
    done, num_bytes, _ = measure(run, device)
    return dataclasses.replace(done, peak_bytes=num_bytes)


def _tidy() -> None:
    gc.collect()
    # glibc keeps what is freed; without it the next run would seem to need less than it does.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class _Sampler:
    """Looks at this process's resident memory again and again."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory-samples", daemon=True)
        self.before = self.peak = _resident()

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, _resident())

    def _look(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_SAMPLES):
            self.peak = max(self.peak, _resident())


def _resident() -> int:
    num_bytes: int = psutil.Process().memory_info().rss
    return num_bytes
