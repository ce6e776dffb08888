"""Threads and OpenMP."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import torch

T = TypeVar("T")


def num_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_passing_thread(work: Callable[[], T]) -> T:
    """Return or raise the outcome of `work`, run in a thread that ends with it, on the caller's CUDA device.

    OpenMP keeps a team of threads for every thread that ever computed, until that one ends. A model that is loaded in
    one thread and used in another leaves two teams. With more threads than cores, GNU OpenMP no longer spins between
    two parallel regions but sleeps, thousands of times in a step. On two cores such an engine is slower than with one.
    """
    # Asking for the device would begin CUDA, also for a job that stays on the CPU.
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    future: Future[T] = Future()

    def run() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    # A daemon: who interrupts the caller does not want to wait for a download.
    thread = threading.Thread(target=run, name="hpd-load", daemon=True)
    thread.start()
    thread.join()
    return future.result()
