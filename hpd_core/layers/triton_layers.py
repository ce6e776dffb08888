"""Decoder layers (`forward.LayerParts`) on a GPU: few launches, each of which reads and writes its tokens once.

As in Llama they are nine, whatever the number of cohorts, prefixes and categories: norm, q|k|v, rotary embedding with
the cache's writes, attention, o, norm, gate|up, gate, down. The projections side by side are one product each, by
weights that are joined once; the model's own layers have views of them. In FP8 norms and gates quantize their output,
and one more launch does so between attention and o. The last layer after its attention is computed only for the tokens
whose logits are wanted.

CUDA graphs of small steps on a GPU: one launch in place of some hundred, where launches take longer than work.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hpd_core.attention.plan import AddressedPlan
from hpd_core.attention.step_tables import Sizes
from hpd_core.attention.triton_step import TritonAttention, TritonStep
from hpd_core.families.table import moving_ropes
from hpd_core.layers.forward import Factors, LayerParts, angles_of, decoder_layers, parts_of, scaled
from hpd_core.layers.fp8 import Fp8Linear, product
from hpd_core.layers.triton_pointwise import add_norm, gated, quantize
from hpd_core.layout import IntArray
from hpd_core.native.linear import norm_of
from hpd_core.system.device import is_out_of_memory, is_waited_for, to_device

_LOGIT_BYTES = 2**29
"""Bytes of logits at a time: a GPU wants large products."""


@dataclass(frozen=True, slots=True)
class _Product:
    """Product [T, N]; `is_fp8`: of rows in FP8. A checkpoint may leave some layers in full precision."""

    multiply: Callable[[Any], Tensor]
    is_fp8: bool = False


@dataclass(frozen=True, slots=True)
class _Layer:
    parts: LayerParts
    qkv: _Product
    o: _Product
    gate_up: _Product
    down: _Product

    def heads(self, x: Tensor, delta: Tensor | None) -> Tensor:
        """Return queries, keys and values of `x` plus `delta`, [T, (H + 2 H_kv) * D]."""
        return self.qkv.multiply(_normed(x, delta, self.parts.before_attention, to_fp8=self.qkv.is_fp8))

    def out(self, attended: Tensor) -> Tensor:
        """Return what attention adds to the residual stream, [T, D]."""
        made = self.o.multiply(quantize(attended) if self.o.is_fp8 else attended)
        return self._added(made, self.parts.after_attention)

    def mlp(self, x: Tensor, delta: Tensor) -> Tensor:
        """Return what the MLP adds to the residual stream, [T, D]."""
        both = self.gate_up.multiply(_normed(x, delta, self.parts.before_mlp, to_fp8=self.gate_up.is_fp8))
        inner = gated(both, is_gelu=self.parts.is_gelu, to_fp8=self.down.is_fp8)
        return self._added(self.down.multiply(inner), self.parts.after_mlp)

    def _added(self, made: Tensor, norm: Any | None) -> Tensor:
        return scaled(made if norm is None else add_norm(made, None, norm_of(norm)), self.parts.factor)


class TritonLayers:
    """Layers of a model for which `forward.why_not_ours` is None."""

    by: Literal["triton"] = "triton"

    def __init__(self, model: Any) -> None:
        """Join weights side by side: the model's own layers become views of them."""
        self._model = model
        with torch.no_grad():
            self._layers = [_layer(layer, model.model.norm.weight.dtype) for layer in decoder_layers(model)]
        self._factors = Factors.of(model)

    @property
    def windows(self) -> set[int]:
        """Sliding windows of its layers."""
        return {layer.parts.window for layer in self._layers if layer.parts.window is not None}

    def logits(self, step: TritonStep) -> Iterator[Tensor]:
        """Return the logits of the wanted rows, as blocks of rows of [n, vocabulary], in order.

        The device has all layers when this returns, and computes a block when it is asked for.
        """
        return self.head(self.hidden(step))

    def hidden(self, step: TritonStep) -> Tensor:
        """Return the output of the last norm, [n, D], of the n tokens whose logits are wanted."""
        step.note()
        x = scaled(self._model.model.embed_tokens(step.token_ids), self._factors.embeddings)  # the residual stream
        angles = angles_of(self._model, [layer.parts for layer in self._layers], x, step.positions)
        delta = None  # what the layer before adds to it
        for number, layer in enumerate(self._layers):
            attended = self._attention(step, number, layer.parts, layer.heads(x, delta), *angles[number])
            if number == len(self._layers) - 1:  # nobody attends to what comes behind
                attended, x = (rows.index_select(0, step.logit_rows) for rows in (attended, x))
                if not len(x):
                    return x
            delta = layer.mlp(x, layer.out(attended))
        return scaled(add_norm(x, delta, norm_of(self._model.model.norm)), self._factors.output)

    def _attention(
        self, step: TritonStep, number: int, layer: LayerParts, heads: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        """Return the attention, [T, H * D]."""
        split = heads.view(len(heads), -1, layer.attention.head_dim)
        count = step.num_kv_heads
        q, k, v = split[:, : -2 * count], split[:, -2 * count : -count], split[:, -count:]
        if layer.of_all_heads is not None:
            q, k = (
                add_norm(x.flatten(1).contiguous(), None, norm_of(norm)).view(x.shape)
                for x, norm in zip((q, k), layer.of_all_heads, strict=True)
            )
        if layer.order is not None:
            q, k = (x.index_select(2, layer.order) for x in (q, k))
        step.rotate_and_store(number, q, k, v, cos, sin, layer.head_norms)
        attended = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        step.attend(number, q, attended, scale=layer.attention.scaling, window=layer.window, softcap=layer.softcap)
        return attended.flatten(1)

    def head(self, hidden: Tensor) -> Iterator[Tensor]:
        """Yield the logits of the output of `hidden`, in blocks."""
        at_once = max(16, _LOGIT_BYTES // (self._model.lm_head.out_features * hidden.element_size()))
        for first in range(0, len(hidden), at_once):
            yield self._factors.capped(self._model.lm_head(hidden[first : first + at_once]))


def _normed(x: Tensor, delta: Tensor | None, norm: Any | None, *, to_fp8: bool) -> Any:
    """Do as `add_norm`, also where there is no norm."""
    if norm is not None:
        return add_norm(x, delta, norm_of(norm), to_fp8=to_fp8)
    stream = x if delta is None else x.add_(delta)
    return quantize(stream) if to_fp8 else stream


def _layer(layer: Any, dtype: torch.dtype) -> _Layer:
    parts = parts_of(layer)
    products = (parts.projections, (parts.attention.o_proj,), parts.gates, (parts.mlp.down_proj,))
    return _Layer(parts, *(_side_by_side(*linears, dtype=dtype) for linears in products))


def _side_by_side(*linears: Any, dtype: torch.dtype) -> _Product:
    """Return one product with all of these layers, side by side."""
    is_ours = not any(map(is_waited_for, linears))
    if is_ours and all(isinstance(linear, Fp8Linear) for linear in linears):
        weight8 = _joined([linear.weight8 for linear in linears])
        scales, bias = _joined([linear.weight_scales for linear in linears]), _joined_bias(linears)
        return _Product(lambda x: product(x[0], x[1], weight8, scales, bias, dtype), is_fp8=True)
    if not is_ours or not all(map(_is_plain, linears)) or len({linear.weight.dtype for linear in linears}) > 1:
        one = linears[0] if len(linears) == 1 else lambda x: torch.cat([linear(x) for linear in linears], dim=-1)
        return _Product(one)
    weight, bias = _joined([linear.weight for linear in linears]), _joined_bias(linears)
    return _Product(lambda x: F.linear(x, weight, bias))


def _joined_bias(linears: Sequence[Any]) -> Tensor | None:
    """Join the biases: a copy with zeros if only some layers have one; None if none has."""
    biases = [linear.bias for linear in linears]
    like = next((bias for bias in biases if bias is not None), None)
    if like is None:
        return None
    if all(bias is not None for bias in biases):
        return _joined(biases)
    pairs = zip(biases, linears, strict=True)
    return torch.cat([like.new_zeros(linear.out_features) if bias is None else bias for bias, linear in pairs])


def _is_plain(linear: Any) -> bool:
    """Return whether the layer is a matrix product, and nothing else."""
    if type(linear) is not torch.nn.Linear or "forward" in linear.__dict__:
        return False
    return not hasattr(linear.weight, "__tensor_flatten__")  # of several tensors, as quantized ones are


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Join the rows of parts [N] or [N, K]; the parts become views of the result, unless they are side by side
    already.
    """
    first = parts[0].data
    ends = [part.data_ptr() + part.numel() * part.element_size() for part in parts]
    is_joined = all(part.data_ptr() == end for part, end in zip(parts[1:], ends[:-1], strict=True))
    same_memory = len({part.untyped_storage().data_ptr() for part in parts}) == 1
    if is_joined and same_memory and all(part.is_contiguous() for part in parts):
        return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
    # torch knows how to move bytes, whatever they are.
    joined = torch.cat([part.data.contiguous().view(torch.uint8) for part in parts]).view(first.dtype)
    start = 0
    for part in parts:
        part.data = joined[start : start + len(part)]
        start += len(part)
    return joined


logger = logging.getLogger(__name__)

BUCKETS = (16, 32, *range(64, 512, 64), *range(512, 1025, 128))
"""Numbers of tokens of captured steps: close enough that padding costs little."""


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
    if ropes := moving_ropes(model.config):
        return f"its rotary embedding ({ropes[0]['rope_type']}) waits for the device in every step"
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
        """Free their memory; they are captured again when a step fits one."""
        self._graphs.clear()

    def logits(
        self, plans: Sequence[AddressedPlan], token_ids: IntArray, logit_rows: IntArray
    ) -> Iterable[Tensor] | None:
        """Return the logits of the wanted rows, as `TritonLayers.logits`; None if no graph fits.

        The first step that fits one captures all of them.
        """
        size = bucket(len(token_ids))
        if size is None or self._is_over:
            return None
        # A window that no token reaches beyond changes nothing; captured are steps without.
        if (windows := self._layers.windows) and max(plan.positions.max() for plan in plans) >= min(windows):
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
