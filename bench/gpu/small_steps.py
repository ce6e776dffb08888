"""How long a small step takes: the tail of a run, and one product alone, are made of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench.gpu.loaded import Loaded
from bench.gpu.plan import LISTINGS, Part
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.models import description
from hpd_core.text.endings import Endings

SIZES = (1, 16, 64, 256, 512)
"""Tokens of the steps. The listings have 16 attributes: 512 are 32 products."""

_STEPS = 24
"""Tokens of each value, and so steps of as many tokens each."""


def run_small_steps(loaded: Loaded, part: Part) -> Iterator[dict[str, Any]]:
    """A row for each of SIZES: the median milliseconds of a step that decodes so many tokens.

    One step at a time: neither the host nor the device has anything else to do meanwhile, as at the end of a run.
    """
    config = loaded.config(part).model_copy(update={"overlap_steps": False, "max_prompts_per_cohort": 128})
    decoder = make_decoder(loaded, config)
    for size in SIZES:
        steps = decode_steps(decoder, loaded, values_of(loaded, size), config)
        of_size = [seconds for seconds, tokens in steps if tokens == size]
        row = {"name": f"{size} tokens", "tokens": size, "ms": 1000 * statistics.median(of_size)}
        loaded.say(f"a step of {size} tokens: {row['ms']:.2f} ms")
        yield row


def values_of(loaded: Loaded, num_values: int) -> Workload:
    """Listings with so many values together, each of as many tokens as all others."""
    attributes = min(16, num_values)
    workload = loaded.workload(LISTINGS, max(SIZES) // 16).part(range(num_values // attributes))
    return workload.with_attributes(attributes).with_values_of(_STEPS)


def decode_steps(decoder: Decoder, loaded: Loaded, workload: Workload, config: EngineConfig) -> list[tuple[float, int]]:
    """Decodes it twice; seconds and tokens of the second time's steps."""
    steps: list[tuple[float, int]] = []
    for _ in range(2):
        steps.clear()
        decoder.add(workload.prompts(loaded.model.config, config))
        while decoder.has_work:
            started = time.perf_counter()
            report = decoder.step()
            seconds = time.perf_counter() - started
            steps.append((seconds, sum(count for cohort in report.cohorts for _, count in cohort)))
    return steps


def make_decoder(loaded: Loaded, config: EngineConfig) -> Decoder:
    """A decoder, fitted to the memory, in which values end by their length alone."""
    num_ids = loaded.model.get_output_embeddings().weight.shape[0]
    decoder = Decoder(loaded.model, Endings.none(num_ids), config, description.cache_shape(loaded.model))
    decoder.fit()
    return decoder
