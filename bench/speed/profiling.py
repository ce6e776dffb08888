"""Where a run's time goes, part by part, for `benchmark.py --profile`.

On a CPU with one thread and by processor time, which neither neighbours on the machine nor waiting distort; on a GPU by
wall time, waiting for the device at every border, so that only the shares mean something.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers

from hpd_core.attention import dispatch
from hpd_core.decoding import model_runner as runner
from hpd_core.decoding import next_token
from hpd_core.layers.native import NativeLayers
from hpd_core.native.linear import TiledMLP, choose_by_tiles

LINEAR, HEAD, ATTENTION, REST, CHOOSING, BOOKKEEPING = (
    "linear layers",
    "logits",
    "attention",
    "norms, rotary, activations, residuals",
    "choosing tokens",
    "bookkeeping",
)


class Profile:
    """Seconds by part; a part within another counts for itself only."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._device = device
        self._parts: list[str] = []
        self._since = 0.0

    def enter(self, part: str) -> None:
        """From now on it is `part`."""
        self._charge()
        self._parts.append(part)

    def leave(self) -> None:
        """Back to what it was."""
        self._charge()
        self._parts.pop()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as `part`."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return run

    def move(self, seconds: float, part: str) -> None:
        """To `part`, of what has just been charged to the one that it is now."""
        self._charge()
        self.seconds[self._parts[-1]] -= seconds
        self.seconds[part] += seconds

    def _charge(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.thread_time() if self._device.type == "cpu" else time.perf_counter()
        if self._parts:
            self.seconds[self._parts[-1]] += now - self._since
        self._since = now


def profile(model: Any, run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of `run`, by part. `model` must run by the engine's attention."""
    found = Profile(model.device)
    head = model.get_output_embeddings()
    call, run_layers = torch.nn.Linear.__call__, NativeLayers.run

    def timed_call(layer: torch.nn.Linear, *args: Any, **kwargs: Any) -> Any:
        return found.timed(HEAD if layer is head else LINEAR, call)(layer, *args, **kwargs)

    def timed_layers(layers: NativeLayers, *args: Any) -> torch.Tensor:
        layers.seconds = inside = np.zeros(3)  # this module cannot look into the call
        try:
            return run_layers(layers, *args)
        finally:
            layers.seconds = None
            for part, seconds in zip((LINEAR, ATTENTION, REST), inside.tolist(), strict=True):
                found.move(seconds, part)

    with ExitStack() as stack:
        if model.device.type == "cpu":  # whose time is one thread's; for a GPU torch would compile anew
            stack.enter_context(_one_thread())
        # No hooks: a layer that has one is not computed together with others.
        stack.enter_context(patch.object(torch.nn.Linear, "__call__", timed_call))
        stack.enter_context(patch.object(TiledMLP, "__call__", found.timed(LINEAR, TiledMLP.__call__)))
        stack.enter_context(patch.object(NativeLayers, "run", timed_layers))
        stack.enter_context(patch.object(runner.ModelRunner, "_packed", found.timed(REST, runner.ModelRunner._packed)))
        # With AMX logits are not written down: the choice of tokens is a part of their product.
        stack.enter_context(patch("hpd_core.decoding.next_token.choose_by_tiles", found.timed(HEAD, choose_by_tiles)))
        stack.enter_context(patch.object(runner, "greedy", found.timed(CHOOSING, next_token.greedy)))
        timed = found.timed(ATTENTION, dispatch.packed_attention)
        transformers.AttentionInterface.register(dispatch.ATTENTION_NAME, timed)
        stack.callback(transformers.AttentionInterface.register, dispatch.ATTENTION_NAME, dispatch.packed_attention)
        found.timed(BOOKKEEPING, run)()
    return dict(found.seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
