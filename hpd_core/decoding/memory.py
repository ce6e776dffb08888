"""How much memory the engine may take: fitted to what is free before it starts, and halved where that was too much."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import psutil
import torch

from hpd_core.attention.kv_cache import CacheShape
from hpd_core.config import EngineConfig

logger = logging.getLogger(__name__)

_SHARE_FOR_CACHE = {"cpu": 0.5, "cuda": 0.75}
"""Of the free memory. A CPU's belongs to others, too; on a GPU activations and logits need the rest."""

_FEWEST_TOKENS = 64
"""Tokens of a step, and of the cache, below which halving them frees nothing worth having."""

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""Of version 2 and 1: the limit, what is in use, and how much of that is files read, which make room when asked."""

_SMALLEST_CACHE = 4096
"""Tokens that a cache is never made smaller than: with less, there is no point in trying to fit."""


def free_bytes(device: torch.device) -> int:
    """Memory of the device that nobody has; in a container, what the limit of its cgroup leaves."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds back for itself is free for it.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return min([int(psutil.virtual_memory().available), *map(_room_in_cgroup, _CGROUP_FILES)])


def _room_in_cgroup(names: tuple[str, str, str, str]) -> int:
    """Bytes that the limit leaves; more than any machine has where there is none."""
    *files, inactive = names
    try:
        limit, used, statistics = ((_CGROUP / name).read_text() for name in files)
    except OSError:  # not Linux, the other version, or no limits
        return sys.maxsize
    if limit.strip() == "max":
        return sys.maxsize
    counts = dict(line.split() for line in statistics.splitlines())
    return max(0, int(limit) - int(used) + int(counts.get(inactive, 0)))


def fitted(config: EngineConfig, shape: CacheShape, free: int) -> EngineConfig:
    """The settings with a KV cache that memory has room for; the model is loaded.

    Args:
        free: bytes, from `free_bytes`. Whoever shares the memory with other engines has to set a limit himself.
    """
    bytes_per_token = shape.numbers_per_token * shape.dtype.itemsize
    share = _SHARE_FOR_CACHE.get(shape.device.type, 0.5)
    most = max(_SMALLEST_CACHE, int(free * share) // bytes_per_token)
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
