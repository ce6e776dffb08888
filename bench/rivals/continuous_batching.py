"""transformers' continuous batching as a rival."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from bench.workloads.workload import ForcedRecord
from pipelines.errors import UsageError

_NO_END = -1  # no token has this id


def run_continuous(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> tuple[float, list[list[int]]]:
    """All records as requests to a fresh manager, so that every prefix is computed in it.

    Starting the manager (cache, warm-up, CUDA graphs) is not counted, as nobody's loading is.

    Args:
        batch_size: requests at once.

    Returns:
        Seconds, and what was written per record.

    Raises:
        UsageError: it cannot run; the message says why.
    """
    longest = max(len(record.trunk) + record.answer_length for record in records)
    generation = GenerationConfig(do_sample=False, eos_token_id=_NO_END, max_new_tokens=longest)
    with _quiet():
        try:
            manager = model.init_continuous_batching(generation, _config(model, longest, batch_size))
            manager.warmup()
            manager.start()
        except (ValueError, RuntimeError, ImportError) as error:
            raise _failure(error) from error
        try:
            started = time.perf_counter()
            names = [
                manager.add_request(record.trunk, max_new_tokens=record.answer_length, eos_token_id=_NO_END)
                for record in records
            ]
            written = _collect(manager, len(names))
            seconds = time.perf_counter() - started
        finally:
            manager.stop(block=True)
            manager.destroy()
    return seconds, [written[name] for name in names]


def _config(model: Any, longest: int, batch_size: int) -> ContinuousBatchingConfig:
    if model.device.type == "cuda":
        # Its own choice, from the GPU's free memory.
        return ContinuousBatchingConfig(max_requests_per_batch=batch_size)
    # On a CPU its own choice would be more than half of the machine's memory. A page as small as vLLM's blocks here:
    # only whole pages of a prompt are found again. Twice the need, so that pages of ended requests can be kept.
    page_size = 32
    num_blocks = 2 * batch_size * (math.ceil(longest / page_size) + 1)
    # transformers 5.17 calls a page a block.
    known = inspect.signature(ContinuousBatchingConfig).parameters
    page = {"page_size" if "page_size" in known else "block_size": page_size}
    return ContinuousBatchingConfig(
        **page, num_blocks=num_blocks, max_batch_tokens=2048, max_requests_per_batch=batch_size
    )


def _collect(manager: Any, count: int) -> dict[str, list[int]]:
    written: dict[str, list[int]] = {}
    while len(written) < count:
        result = manager.get_result(timeout=1)
        if result is None:
            if not manager.is_running():
                raise _failure(manager.background_thread_status.fatal_error)
        elif result.error is not None:
            raise _failure(result.error)
        elif result.is_finished():
            written[result.request_id] = result.generated_tokens
    return written


def _failure(reason: object) -> UsageError:
    first_line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    return UsageError(f"transformers' continuous batching does not run with this model here: {first_line}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Its errors reach the user as one line, not as a thread's stack trace."""
    logger = logging.getLogger("ContinuousBatchingLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with torch.no_grad():
            yield
    finally:
        logger.setLevel(level)
