"""Memory limits of the engine: fitted to the free memory at the start, halved if that was too much, doubled later."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers.integrations.heterogeneity import AmbiguousGlobalPerLayerAttributeError

from hpd_core.attention.kv_cache import CacheShape
from hpd_core.config import EngineConfig
from hpd_core.mixers.states import MixerShape

logger = logging.getLogger(__name__)

_SHARE_FOR_CACHE = {"cpu": 0.5, "cuda": 0.8}
"""Share of the free memory that the cache takes. On a GPU a step's memory is subtracted first; the rest is for cached
prefixes and fragmentation. A CPU's memory belongs to others, too."""

_SHARE_FOR_STEP = {"cpu": 0.5, "cuda": 0.25}
"""Share of the free memory that a step may take with 'auto'."""

_CACHED_STEPS = 64
"""With 'auto' the cache holds the tokens of so many steps. More would not make steps larger: 1,000 to 2,000 products,
of some hundred slots each, have 16,384 values to decode at a time."""

_STEP_TOKENS = {"cpu": 4096, "cuda": 16_384}
"""Tokens per step with 'auto'. A GPU's products are a seventh faster with 16,384 rows than with 4,096 (on an H200)."""

_FEWEST_STEP_TOKENS = 1024
"""Tokens per step that 'auto' does not go below if memory is short."""

_STEP_TOKENS_A_PROMPT = 128
"""Tokens per step for each prompt of a cohort with 'auto'. A cohort is admitted by about one step, whose documents and
keys are some hundred tokens each."""

_LOGITS_BYTES = 2**30
"""Reserve on a GPU: for the block of logits that is reduced at a time, in fp32, and for unaccounted memory."""

_FEWEST = (64, 1, 64, 1)
"""Limits below which they are not halved: it would free too little."""

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""Files of cgroup versions 2 and 1: the limit, the usage, and the share of it that is reclaimable file cache."""

_SMALLEST_CACHE = 4096
"""Tokens that a cache has at least: with less, there is no point in trying to fit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what is decoded at a time: the settings of the same names, with 'auto' resolved."""

    max_tokens_per_step: int
    max_prompts_per_cohort: int
    max_cached_tokens: int
    max_cached_prefixes: int

    @classmethod
    def of(cls, config: EngineConfig, device: torch.device, room: int | None = None) -> Limits:
        """Return the settings for this device.

        Args:
            room: the most tokens of a step that its memory holds; None: no limit.
        """
        tokens = _STEP_TOKENS.get(device.type, _STEP_TOKENS["cpu"])
        if room is not None and room < tokens:
            tokens = max(_FEWEST_STEP_TOKENS, 1 << max(1, room).bit_length() - 1)
        prompts = tokens // _STEP_TOKENS_A_PROMPT
        cached = tokens * _CACHED_STEPS
        return cls(
            tokens if config.max_tokens_per_step == "auto" else config.max_tokens_per_step,
            prompts if config.max_prompts_per_cohort == "auto" else config.max_prompts_per_cohort,
            cached if config.max_cached_tokens == "auto" else config.max_cached_tokens,
            config.max_cached_prefixes,
        )


def free_bytes(device: torch.device) -> int:
    """Return the device's free memory in bytes; in a container, at most what the limit of its cgroup leaves."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch holds in reserve is free for it.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return min([int(psutil.virtual_memory().available), *map(_room_in_cgroup, _CGROUP_FILES)])


def _room_in_cgroup(names: tuple[str, str, str, str]) -> int:
    """Return the bytes that the limit leaves; `sys.maxsize` if there is no limit."""
    *files, inactive = names
    try:
        limit, used, statistics = ((_CGROUP / name).read_text() for name in files)
    except OSError:  # not Linux, the other version, or no limits
        return sys.maxsize
    if limit.strip() == "max":
        return sys.maxsize
    counts = dict(line.split() for line in statistics.splitlines())
    return max(0, int(limit) - int(used) + int(counts.get(inactive, 0)))


def activation_bytes(model: Any, shape: CacheShape, mixers: Sequence[MixerShape] = ()) -> int:
    """Return the bytes of activations that a token of a step takes, without the cache: an estimate from above.

    It counts all inputs and outputs of a decoder layer's linear layers, as if they existed at once. It adds the logits
    of every fourth token: in a large step, most tokens are documents' and keys'.

    Args:
        mixers: shapes of the layers beside attention, if it has any.
    """
    config = model.config.get_text_config()
    hidden = config.hidden_size
    attention = 4 * hidden + max((layer.attended_numbers for layer in shape.layers), default=0)
    # Every expert that a token goes through has its own copy of it.
    experts = max(_of_layers(config, "num_experts_per_tok"), default=1) or 1
    names = ("intermediate_size", "ffn_dim") if experts == 1 else ("moe_intermediate_size", "intermediate_size")
    width = next((max(found) for name in names if (found := _of_layers(config, name))), 4 * hidden)
    head = model.get_output_embeddings().weight.shape[0]
    numbers = attention + experts * (3 * hidden + 3 * width) + head // 4
    mixing = max((mixer.bytes_in_a_step for mixer in mixers), default=0)
    return int(numbers * model.get_input_embeddings().weight.element_size()) + mixing


def _of_layers(config: Any, name: str) -> list[int]:
    """Return the numbers of this name in a configuration: none, one for all layers, or one for each."""
    try:
        found = getattr(config, name, None)
    except AmbiguousGlobalPerLayerAttributeError:
        found = [getattr(config.per_layer_config[layer], name) for layer in range(config.num_hidden_layers)]
    numbers = found if isinstance(found, list | tuple) else [found]
    return [number for number in numbers if number]


def fitted(
    config: EngineConfig, shape: CacheShape, free: int, activations: int, bytes_per_token: int | None = None
) -> Limits:
    """Return limits that memory has room for; the model is loaded.

    The user's settings are kept, except for a cache that does not fit.

    Args:
        free: bytes, from `free_bytes`. Users who share the memory with other engines have to set a limit themselves.
        activations: bytes per token, from `activation_bytes`.
        bytes_per_token: of the cache; None: that of keys and values.
    """
    bytes_per_token = bytes_per_token or max(1, shape.numbers_per_token * shape.dtype.itemsize)
    kind = shape.device.type if shape.device.type in _SHARE_FOR_CACHE else "cpu"
    limits = Limits.of(config, shape.device, int(free * _SHARE_FOR_STEP[kind] - _LOGITS_BYTES) // activations)
    step = _LOGITS_BYTES + limits.max_tokens_per_step * activations if kind == "cuda" else 0
    most = max(_SMALLEST_CACHE, int((free - step) * _SHARE_FOR_CACHE[kind]) // bytes_per_token)
    if limits.max_cached_tokens <= most:
        return limits
    if config.max_cached_tokens != "auto":
        logger.warning(
            "engine.max_cached_tokens is %d and would take %.1f GiB; %.1f GiB are free: it is %d here",
            limits.max_cached_tokens,
            limits.max_cached_tokens * bytes_per_token / 2**30,
            free / 2**30,
            most,
        )
    return replace(limits, max_cached_tokens=most)


def halved(limits: Limits) -> Limits | None:
    """Return limits that take about half of the memory; None if they cannot become smaller.

    Answers do not depend on any of them (with `tree`; in half precision up to rounding).
    """
    pairs = zip(astuple(limits), _FEWEST, strict=True)
    smaller = Limits(*(min(count, max(fewest, count // 2)) for count, fewest in pairs))
    return None if smaller == limits else smaller


def doubled(limits: Limits, most: Limits) -> Limits:
    """Return limits that take about twice the memory, but not above `most`."""
    return Limits(*(min(2 * count, top) for count, top in zip(astuple(limits), astuple(most), strict=True)))
