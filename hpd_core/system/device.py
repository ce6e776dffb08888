"""Device access: tensors to it and back without waiting for its work; out of memory or not; its threads; hooks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.modules import module as of_all


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy `array` to the device, in the order of the device's work.

    On a GPU it goes through page-locked memory: from any other, the driver may wait until all work before the copy is
    done. On a CPU the two share their memory.
    """
    if device.type != "cuda":
        return torch.from_numpy(array).to(device)
    # What is strided would go by way of ordinary memory after all.
    return torch.from_numpy(np.ascontiguousarray(array)).pin_memory().to(device, non_blocking=True)


class Fetched:
    """Tensors that are being copied to the host."""

    def __init__(self, *tensors: Tensor) -> None:
        """Start the copies, of tensors of one device."""
        device = tensors[0].device
        self._tensors = [tensor.to("cpu", non_blocking=device.type == "cuda") for tensor in tensors]
        self._arrived = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Wait for the copies and return them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return [tensor.numpy() for tensor in self._tensors]


_SAID_ELSEWHERE = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
)
"""Messages of torch's CPU allocator, and of CUDA where it is not torch that allocates. cuBLAS raises the last if a
thread's first product finds no memory. If it means something else, it comes again with less.
"""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error says that memory ran out. torch's CPU allocator has no class of its own for that."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _SAID_ELSEWHERE)


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


def is_waited_for(layer: torch.nn.Module) -> bool:
    """Return whether there is a hook on its call, so that it has to be called."""
    own = layer._forward_hooks or layer._forward_pre_hooks
    return bool(own or of_all._global_forward_hooks or of_all._global_forward_pre_hooks)
