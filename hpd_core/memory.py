"""Memory: what the engine may take, known before it starts, and less of it once there was not enough all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import psutil
import torch

from hpd_core.cache import CacheShape
from hpd_core.config import EngineConfig

logger = logging.getLogger(__name__)

_SHARE_FOR_CACHE = {"cpu": 0.5, "cuda": 0.75}
"""Of the free memory. A CPU's belongs to others, too; on a GPU activations and logits need the rest."""

_FEWEST_TOKENS = 64
"""Tokens of a step, and of the cache, below which halving them frees nothing worth having."""

_CGROUP = Path("/sys/fs/cgroup")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory was missing. torch's CPU allocator has no class of its own for that."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def free_bytes(device: torch.device) -> int:
    """Memory of the device that nobody has; within a container, what its limit leaves."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds back for itself is free for it.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    available = int(psutil.virtual_memory().available)
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # not Linux, an older kernel, or no limits
        return available
    return available if limit == "max" else min(available, max(0, int(limit) - int(used)))


def fitted(config: EngineConfig, shape: CacheShape, free: int) -> EngineConfig:
    """The settings with a KV cache that memory has room for; the model is loaded.

    Args:
        free: bytes, from `free_bytes`.
    """
    bytes_per_token = shape.numbers_per_token * shape.dtype.itemsize
    share = _SHARE_FOR_CACHE.get(shape.device.type, 0.5)
    most = max(1, int(free * share) // bytes_per_token)
    if config.max_cached_tokens <= most:
        return config
    logger.warning(
        "engine.max_cached_tokens is %d and would take %.1f GiB; %.1f GiB are free: it is %d here",
        config.max_cached_tokens,
        config.max_cached_tokens * bytes_per_token / 2**30,
        free / 2**30,
        most,
    )
    return config.model_copy(update={"max_cached_tokens": most})


def halved(config: EngineConfig) -> EngineConfig | None:
    """Settings that take about half of the memory; None where one prompt alone is all that still runs.

    Answers do not depend on any of them (with `tree`; in half precision up to rounding).
    """
    limits = {
        "max_tokens_per_step": max(_FEWEST_TOKENS, config.max_tokens_per_step // 2),
        "max_prompts_per_cohort": max(1, config.max_prompts_per_cohort // 2),
        "max_cached_tokens": max(_FEWEST_TOKENS, config.max_cached_tokens // 2),
        "max_cached_prefixes": max(1, config.max_cached_prefixes // 2),
    }
    # Never more than the user allowed.
    limits = {name: min(value, getattr(config, name)) for name, value in limits.items()}
    smaller = config.model_copy(update=limits)
    return None if smaller == config else smaller
