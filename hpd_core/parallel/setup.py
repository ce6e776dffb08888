"""Settings, devices and messages that the processes of a tensor-parallel engine share before they meet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.models import loading

HOST = "127.0.0.1"

HERE, LOADED, READY = "here", "loaded", "ready"
WRONG, FULL, BROKEN = "wrong ", "full ", "broken "
"""Messages of a process: it has its device; it has loaded its part; it is proved; why it ends: the user's fault, too
little memory, or anything else.
"""

LONGEST_WAIT = timedelta(minutes=5)
"""Timeout of one process for another, until they have met and within a step: all of them are at about the same
place.
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings that a process needs to become a part of the engine.

    Attributes:
        port: of rank 0 on this node, where the processes find each other.
        num_threads: of each, if the model is on a CPU.
    """

    model: str
    config: EngineConfig
    adapter: str | None
    rank: int
    port: int
    num_threads: int


def abort() -> None:
    """Abort the GPUs' joint work. NCCL does not notice that another process died, and would wait for it."""
    if dist.is_initialized() and dist.group.WORLD is not None:
        dist.group.WORLD.abort()


def take_device(config: EngineConfig, rank: int) -> torch.device:
    """Return the rank's device and make it this thread's; a tensor is put there to see that it works.

    Raise `ModelError` if it is not there.
    """
    device = loading.resolve_device(config)
    if device.type == "cuda":
        if device.index is not None:
            raise ModelError(f"tensor_parallel takes the GPUs from the first on; set device to 'cuda', not {device}")
        count = torch.cuda.device_count()
        if count < config.tensor_parallel:
            raise ModelError(f"tensor_parallel is {config.tensor_parallel}, there are {count} GPUs")
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    return device
