"""Yardsticks: the best that the machine could do.

    ceiling    as many tokens forwarded by the bare model in large dense batches: causal, its own attention, no KV
               cache, logits for as many tokens as decoded. The best of several batch shapes and of transformers' ways
               to attend
    floor      the matrix products of the same tokens alone, of as many rows as the engine's large steps have; of the
               last layer, what does not go into the cache only for those with logits

A layout's efficiency is the ceiling's seconds divided by its own, for its own number of tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpd_core.layers.fp8 import Fp8Linear, quantize_rows
from hpd_core.layers.fp8 import product as fp8_product

DENSE_SHAPES: Sequence[tuple[int, int]] = tuple(
    (num_tokens // length, length) for length in (64, 128, 256, 512) for num_tokens in (1024, 2048, 4096, 8192)
)
"""(rows, length) of the dense batches that are tried."""

_CACHED = ("k_proj", "v_proj", "qkv", "query_key_value")
"""Parts of names of linear layers: keys and values are wanted of every token, in every layer."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """Amount of forwarded work.

    Attributes:
        num_tokens: tokens through the layers, a shared prefix as often as it was computed.
        num_logits: of those, tokens whose next one was decoded.
    """

    num_tokens: int
    num_logits: int


def best_shape(
    model: Any, work: StepWork, shapes: Sequence[tuple[int, int]] = DENSE_SHAPES
) -> tuple[float, tuple[int, int]]:
    """Return the most tokens a second of any dense batch shape, and that shape."""
    rates: dict[tuple[int, int], float] = {}
    run_dense(model, StepWork(1, 1), shapes[0])
    for rows, length in shapes:
        batch = StepWork(rows * length, max(1, round(rows * length * work.num_logits / work.num_tokens)))
        rates[rows, length] = batch.num_tokens / seconds_of(partial(run_dense, model, batch, (rows, length)))
    return max((rate, shape) for shape, rate in rates.items())


def rows_of_large_steps(tokens: Sequence[int]) -> int:
    """Return the median size of an engine's large steps: those of half of the largest one's tokens, or more.

    Args:
        tokens: of each step, at least one.
    """
    large = [count for count in tokens if 2 * count >= max(tokens)]
    return int(statistics.median(large))


def seconds_of(run: Callable[[], Any]) -> float:
    """Return how long `run` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@torch.inference_mode()
def run_dense(model: Any, work: StepWork, shape: tuple[int, int]) -> StepWork:
    """Forwards (at least) the work in dense batches; returns what was forwarded.

    `model` must run by an attention of its own (`steering.own_attention`).
    """
    rows, length = shape
    share = work.num_logits / work.num_tokens
    num_tokens = num_logits = 0
    vocabulary = model.get_input_embeddings().weight.shape[0]
    while num_tokens < work.num_tokens:
        batch = min(rows, -(-(work.num_tokens - num_tokens) // length))
        # So many positions of every row that the running total is right.
        wanted = round((num_tokens + batch * length) * share) - num_logits
        keep = torch.arange(min(length, max(0, round(wanted / batch))), device=model.device)
        ids = torch.randint(vocabulary, (batch, length), device=model.device)
        logits: Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        logits.argmax(dim=-1).cpu()  # waits for the device
        num_tokens += batch * length
        num_logits += batch * len(keep)
    return StepWork(num_tokens, num_logits)


class Floor:
    """The matrix products of some work, each with the model's own weights, and nothing else.

    How fast a product is depends on its rows: these have as many as a step of the engine has.
    """

    def __init__(self, model: Any, rows: int) -> None:
        """Make products of at most `rows` rows (`rows_of_large_steps`)."""
        self._rows = rows
        self._head = model.get_output_embeddings()
        layers = getattr(model.get_decoder(), "layers", None)  # families that name them otherwise are computed whole
        last = _linears(layers[-1]) if layers else []
        late = [module for name, module in last if not any(part in name for part in _CACHED)]
        self._layers = [module for _, module in _linears(model) if module not in (*late, self._head)]
        self._late_layers = late
        sizes = {module.in_features for module in [*self._layers, *late, self._head]}
        like: dict[str, Any] = {"dtype": self._head.weight.dtype, "device": model.device}
        self._inputs = {size: torch.randn(rows, size, **like) for size in sizes}
        in_fp8 = {module.in_features for module in [*self._layers, *late] if isinstance(module, Fp8Linear)}
        self._inputs8 = {size: quantize_rows(self._inputs[size]) for size in in_fp8}

    @torch.inference_mode()
    def run(self, work: StepWork) -> None:
        """Compute all products once."""
        product = self._inputs[self._head.in_features]
        for count in _blocks(work.num_tokens, self._rows):
            for module in self._layers:
                product = self._product(module, count)
        # Of a step's tokens, those that have logits.
        for count in _blocks(work.num_logits, max(1, round(self._rows * work.num_logits / work.num_tokens))):
            for module in [*self._late_layers, self._head]:
                product = self._product(module, count)
        product[0, 0].item()  # waits for the device

    def _product(self, module: torch.nn.Linear | Fp8Linear, count: int) -> Tensor:
        if isinstance(module, Fp8Linear):  # what it is given is in FP8 already
            x8, scales = self._inputs8[module.in_features]
            weight, of_weight = module.weight8, module.weight_scales
            return fp8_product(x8[:count], scales[:count], weight, of_weight, None, self._head.weight.dtype)
        found: Tensor = module(self._inputs[module.in_features][:count])
        return found


def _linears(module: Any) -> list[tuple[str, torch.nn.Linear | Fp8Linear]]:
    return [(name, part) for name, part in module.named_modules() if isinstance(part, torch.nn.Linear | Fp8Linear)]


def _blocks(total: int, rows: int) -> Iterator[int]:
    for first in range(0, total, rows):
        yield min(rows, total - first)
