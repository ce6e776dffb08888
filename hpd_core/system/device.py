"""The device: tensors to it and back without waiting for what it has still to do, and whether its memory ran out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """`array` on the device, in the order of what is given to it.

    On a GPU by way of page-locked memory: from any other, the driver may wait until all work before the copy is done.
    On a CPU the two share their memory.
    """
    if device.type != "cuda":
        return torch.from_numpy(array).to(device)
    # What is strided would go by way of ordinary memory after all.
    return torch.from_numpy(np.ascontiguousarray(array)).pin_memory().to(device, non_blocking=True)


class Fetched:
    """Tensors on their way to the host."""

    def __init__(self, *tensors: Tensor) -> None:
        """Starts the copies, of tensors of one device."""
        device = tensors[0].device
        self._tensors = [tensor.to("cpu", non_blocking=device.type == "cuda") for tensor in tensors]
        self._arrived = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Waits for them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return [tensor.numpy() for tensor in self._tensors]


_SAID_ELSEWHERE = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
)
"""By torch's CPU allocator, and by CUDA where it is not torch that allocates. The last is what cuBLAS says where a
thread's first product finds no memory; where it means something else, it comes again with less."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory was missing. torch's CPU allocator has no class of its own for that."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _SAID_ELSEWHERE)
