"""CUDA graphs of small steps on a GPU: one launch in place of some hundred, where launches take longer than work.

A graph is a forward of a fixed number of tokens, captured once. A smaller step is padded with tokens that are not
stored and tiles that do nothing. Only the numbers in its tables (attention/step_tables.py) change from step to step.
They are copied to where the graph reads them. Addresses of keys and values are such numbers, so cohorts come and go.
Large steps would gain nothing.
"""

from __future__ import annotations

import bisect
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpd_core.attention.plan import AddressedPlan
from hpd_core.attention.step_tables import Sizes
from hpd_core.attention.triton_step import TritonAttention
from hpd_core.layers.triton_layers import TritonLayers
from hpd_core.layout import IntArray
from hpd_core.system.device import is_out_of_memory, to_device

logger = logging.getLogger(__name__)

BUCKETS = (16, 32, *range(64, 512, 64), *range(512, 1025, 128))
"""Numbers of tokens of captured steps: close enough that padding costs little."""

_MOVING_ROPE = frozenset({"longrope", "dynamic"})
"""Rotary embeddings that look at the longest row of a forward."""


def bucket(num_tokens: int) -> int | None:
    """Return the size of the graph for `num_tokens` tokens; None if they are too many."""
    place = bisect.bisect_left(BUCKETS, num_tokens)
    return BUCKETS[place] if place < len(BUCKETS) else None


def sizes_of(num_tokens: int) -> Sizes:
    """Return table sizes for any step of at most `num_tokens` tokens: a tile, a prompt and a logit row have at least
    one.
    """
    return Sizes(num_tokens, num_tokens, num_tokens, num_tokens, num_tokens)


def why_no_graphs(model: Any, device: torch.device) -> str | None:
    """Return why steps cannot be captured; None if they can."""
    if device.type != "cuda":
        return f"CUDA graphs are for GPUs, not for {device}"
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _MOVING_ROPE:
        return f"its rotary embedding ({rope['rope_type']}) waits for the device in every step"
    if any(part._forward_hooks or part._forward_pre_hooks for part in model.modules()):
        return "somebody waits for its layers (as where several GPUs share them)"
    return None


class StepGraphs:
    """CUDA graphs of one decoder."""

    def __init__(
        self, layers: TritonLayers, attention: TritonAttention, device: torch.device, *, is_required: bool
    ) -> None:
        """Prepare; nothing is captured yet. `is_required`: errors of capturing are raised."""
        self._layers, self._attention, self._device = layers, attention, device
        self._is_required = is_required
        self._graphs: dict[int, _Graph] = {}
        self._is_over = False
        # A window that no token reaches beyond changes nothing; captured are steps without.
        self._most_positions = min(layers.windows, default=None)

    def _capture(self) -> None:
        """Capture all graphs, in a few seconds; none if that fails. Raise if memory ran out, or graphs are required."""
        started = time.perf_counter()
        # Large ones first: those that follow find room in their memory.
        pool, graphs = None, {}
        try:
            for num_tokens in reversed(BUCKETS):
                graphs[num_tokens] = graph = _Graph(self._layers, self._attention, self._device, num_tokens, pool)
                pool = graph.pool
        except Exception as error:
            if is_out_of_memory(error) or self._is_required:
                raise
            logger.warning("small steps go without CUDA graphs: %s", str(error).partition("\n")[0])
            self._is_over = True
            return
        self._graphs = graphs
        logger.info("captured %d CUDA graphs in %.1f s", len(graphs), time.perf_counter() - started)

    def forget(self) -> None:
        """Free their memory; from now on nothing runs by graphs."""
        self._graphs.clear()
        self._is_over = True

    def logits(
        self, plans: Sequence[AddressedPlan], token_ids: IntArray, logit_rows: IntArray
    ) -> Iterable[Tensor] | None:
        """Return the logits of the wanted rows, as `TritonLayers.logits`; None if no graph fits.

        The first step that fits one captures all of them.
        """
        size = bucket(len(token_ids))
        if size is None or self._is_over:
            return None
        if self._most_positions is not None and max(plan.positions.max() for plan in plans) >= self._most_positions:
            return None
        if not self._graphs:
            self._capture()
        graph = self._graphs.get(size)
        if graph is None:
            return None
        if sum(len(plan.hidden_columns) for plan in plans) > graph.num_tokens:
            return None
        tables = self._attention.tables(plans, token_ids, logit_rows, sizes_of(graph.num_tokens))
        return self._layers.head(graph.run(tables.numbers)[: len(logit_rows)])


class _Graph:
    """Forward of `num_tokens` tokens."""

    def __init__(
        self, layers: TritonLayers, attention: TritonAttention, device: torch.device, num_tokens: int, pool: Any
    ) -> None:
        sizes = sizes_of(num_tokens)
        empty = attention.tables([], np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), sizes)
        self.num_tokens = num_tokens
        self._numbers = to_device(empty.numbers, device)
        step = attention.at(self._numbers, sizes, last_position=0)
        self._replay, self._hidden, self.pool = capture(lambda: layers.hidden(step), device, pool)

    def run(self, numbers: IntArray) -> Tensor:
        """Return the output of the last norm, [num_tokens, D], for a step with these tables; valid until the next
        run.
        """
        # By way of page-locked memory, as `to_device`: from any other the host would wait.
        self._numbers.copy_(torch.from_numpy(numbers).pin_memory(), non_blocking=True)
        self._replay()
        return self._hidden


def capture(run: Callable[[], Tensor], device: torch.device, pool: Any) -> tuple[Callable[[], None], Tensor, Any]:
    """Capture the device work of `run`. Return a function to replay it, the tensor that it writes, and its memory
    pool.
    """
    side = _stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()  # what is made at the first time is not captured
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Another engine's thread may do what it likes meanwhile; and torch's own stream would be the first device's.
    with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
        out = run()
    return graph.replay, out, graph.pool()


@functools.cache
def _stream(device: torch.device) -> Any:
    """Return one stream for all captures on a device: cuBLAS keeps memory for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
