"""Binding of `layers.cpp` to tensors: all decoder layers in one call, where their products are by tiles (AMX)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hpd_core.attention.native import NativeAttention, check_scale, window_of
from hpd_core.native import library
from hpd_core.native.linear import Norm, PackedWeight, TiledLinear, TiledMLP, is_read

if TYPE_CHECKING:
    from hpd_core.attention.plan import AttentionPlan

CACHED_WEIGHTS = 2**25
"""Bytes of a layer's weights that each thread may read by itself, for its own rows. It is a guess between 7 MB, where
that was measured to pay, and hundreds, which threads had better share.
"""


class _Linear(ctypes.Structure):
    """Structure of layers.cpp, field by field, as those below."""

    _fields_ = [
        ("weight", library.POINTER),
        ("blocks", library.INT),
        ("columns", library.INT),
        ("bias", library.POINTER),
    ]


class _Norm(ctypes.Structure):
    _fields_ = [("weight", library.POINTER), ("eps", library.NUMBER)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, _Norm) for name in ("before_attention", "before_mlp", "of_queries", "of_keys")),
        *((name, _Linear) for name in ("q", "k", "v", "o", "gate_up", "down")),
        ("window", library.INT),
        ("scale", library.NUMBER),
    ]


class _Cohort(ctypes.Structure):
    _fields_ = [
        ("problem", library.POINTER),
        ("first_token", library.INT),
        *((name, library.POINTER) for name in ("keys", "values", "prefixes")),
        ("num_prefixes", library.INT),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, library.INT) for name in ("num_layers", "num_cohorts", "num_tokens", "num_logit_rows")),
        *((name, library.INT) for name in ("size", "num_heads", "num_kv_heads", "head_size")),
        *((name, library.POINTER) for name in ("layers", "cohorts")),
        ("last", _Norm),
        *((name, library.POINTER) for name in ("x", "cos", "sin", "logit_rows", "out", "normed", "delta")),
        *((name, library.POINTER) for name in ("q", "k", "v", "attended", "seconds")),
        *((name, library.INT) for name in ("cuts_rows", "num_threads")),
    ]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Decoder layer as in Llama.

    Attributes:
        before_attention, before_mlp: norms of the residual stream.
        of_heads: norms of each head of the queries and of the keys, or None.
        window: of attention, or None.
        scale: factor of the scores.
    """

    before_attention: Norm
    before_mlp: Norm
    of_heads: tuple[Norm, Norm] | None
    q: TiledLinear
    k: TiledLinear
    v: TiledLinear
    o: TiledLinear
    mlp: TiledMLP
    window: int | None
    scale: float

    @property
    def packed(self) -> Sequence[PackedWeight]:
        """Packed weights of q, k, v, o, gate and up, down."""
        return (self.q.weight, self.k.weight, self.v.weight, self.o.weight, self.mlp.gate_up, self.mlp.down)

    @property
    def key(self) -> Sequence[object]:
        """Key that is equal for layers that compute the same from the same memory."""
        norms = (self.before_attention, self.before_mlp, *(self.of_heads or ()))
        biases = tuple(
            None if layer.bias is None else layer.bias.data_ptr() for layer in (self.q, self.k, self.v, self.o)
        )
        places = tuple((weight.tiles.data_ptr(), weight.num_columns, weight.depth) for weight in self.packed)
        return (*map(_key, norms), places, biases, self.window, self.scale)


def _key(norm: Norm) -> object:
    return norm.weight.data_ptr(), norm.eps


class NativeLayers:
    """All layers and the norm after the last.

    It has the addresses of the weights and does not hold them, so that repacked weights never exist beside the old
    ones. The caller holds them, and checks `is_made_of` before a run.

    Attributes:
        seconds: float64 [3] or None. If it is set and there is one thread, its processor time in linear layers, in
            attention and in the rest is added to it.
    """

    def __init__(self, weights: Sequence[LayerWeights], last: Norm, head_size: int) -> None:
        """Raise `RuntimeError` for sizes that do not fit each other, or norms that the library does not read.

        Raise `ValueError` if a scale is not positive.
        """
        self._keys = _keys(weights, last)
        self.seconds: npt.NDArray[np.float64] | None = None
        self._workspace = last.weight.new_empty(0)
        first = weights[0]
        self._size = len(last.weight)
        self._head_size = head_size
        self._num_heads, self._num_kv_heads = (part.weight.num_columns // head_size for part in (first.q, first.k))
        for layer in weights:
            self._check_layer(layer)
        _check(last.weight, self._size)
        self._layers, self._last = (_Layer * len(weights))(*map(_layer, weights)), _norm(last)
        num_bytes = max(sum(weight.tiles.nbytes for weight in layer.packed) for layer in weights)
        self._cuts_rows = num_bytes <= CACHED_WEIGHTS

    def _check_layer(self, layer: LayerWeights) -> None:
        """Raise `RuntimeError` if sizes do not fit: the library does not check them."""
        size, heads, kv_heads = self._size, self._num_heads * self._head_size, self._num_kv_heads * self._head_size
        hidden = layer.mlp.down.depth
        found = [(weight.num_columns, weight.depth) for weight in layer.packed]
        wanted = [(heads, size), (kv_heads, size), (kv_heads, size), (size, heads), (hidden, size), (size, hidden)]
        if found != wanted or self._num_heads % self._num_kv_heads:
            raise RuntimeError(f"layers of {found}; the model's others are of {wanted}")
        for norm in (layer.before_attention, layer.before_mlp):
            _check(norm.weight, size)
        for norm in layer.of_heads or ():
            _check(norm.weight, self._head_size)
        check_scale(layer.scale)

    def is_made_of(self, weights: Sequence[LayerWeights], last: Norm) -> bool:
        """Return whether a new one would compute the same."""
        return self._keys == _keys(weights, last)

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, plans: Sequence[AttentionPlan], logit_rows: Tensor) -> Tensor:
        """Return the output of the last norm, [n, size], for the n tokens `logit_rows`.

        Keys and values of all tokens are stored.

        Args:
            x: [T, size], the embeddings; it is written to.
            cos, sin: [T, head size]
            plans: of the cohorts, which the T tokens are of.
            logit_rows: int64 [n]

        Raises:
            MemoryError: there is not enough.
            RuntimeError: the model's heads are not those that the cache was made for.
        """
        num_tokens, heads = len(x), (self._num_heads, self._num_kv_heads, self._head_size)
        _check(x, num_tokens, self._size)
        _check(cos, num_tokens, self._head_size)
        _check(sin, num_tokens, self._head_size)
        if logit_rows.dtype != torch.int64 or not logit_rows.is_contiguous() or len(logit_rows) > num_tokens:
            raise RuntimeError(f"logit rows of {logit_rows.dtype}, {len(logit_rows)} of {num_tokens} tokens")
        kernels = [plan.kernel(NativeAttention) for plan in plans]
        for kernel in kernels:
            kernel.check_layers(len(self._layers), self._num_kv_heads, self._head_size, x.dtype)
        cohorts = (_Cohort * len(plans))(
            *(
                _Cohort(kernel.problem, plan.start, *kernel.addresses, kernel.num_prefixes)
                for plan, kernel in zip(plans, kernels, strict=True)
            )
        )
        out = x.new_empty(len(logit_rows), self._size)
        step = _Step(
            *(len(self._layers), len(plans), num_tokens, len(logit_rows)),
            *(self._size, *heads),
            *(ctypes.addressof(self._layers), ctypes.addressof(cohorts)),
            self._last,
            *(tensor.data_ptr() for tensor in (x, cos, sin, logit_rows, out)),
            *self._scratch(num_tokens),
            None if self.seconds is None else self.seconds.ctypes.data,
            *(self._cuts_rows, torch.get_num_threads()),
        )
        if library.load().hpd_layers(ctypes.byref(step)):
            raise MemoryError("the layers found no memory for what is between them")
        return out

    def _scratch(self, num_tokens: int) -> list[int]:
        """Return the addresses of memory between layers; it is kept for the next step, since its pages have been
        touched.
        """
        q_size, k_size = self._num_heads * self._head_size, self._num_kv_heads * self._head_size
        parts = [num_tokens * size for size in (self._size, self._size, q_size, k_size, k_size, q_size)]
        if len(self._workspace) < sum(parts):
            self._workspace = self._workspace.new_empty(0)  # not both at a time
            self._workspace = self._workspace.new_empty(sum(parts) * 5 // 4)
        start, itemsize = self._workspace.data_ptr(), self._workspace.itemsize
        return [start + itemsize * first for first in accumulate(parts[:-1], initial=0)]


def _keys(weights: Sequence[LayerWeights], last: Norm) -> list[object]:
    return [_key(last), *(layer.key for layer in weights)]


def _layer(weights: LayerWeights) -> _Layer:
    norms = (weights.before_attention, weights.before_mlp, *(weights.of_heads or (None, None)))
    return _Layer(
        *map(_norm, norms),
        *map(_linear, (weights.q, weights.k, weights.v, weights.o)),
        *(_linear(TiledLinear(weight)) for weight in (weights.mlp.gate_up, weights.mlp.down)),
        window_of(weights.window),
        weights.scale,
    )


def _norm(norm: Norm | None) -> _Norm:
    return _Norm(None, 0.0) if norm is None else _Norm(norm.weight.data_ptr(), norm.eps)


def _linear(linear: TiledLinear) -> _Linear:
    weight, bias = linear.weight, linear.bias
    return _Linear(
        weight.tiles.data_ptr(), len(weight.tiles), weight.num_columns, None if bias is None else bias.data_ptr()
    )


def _check(x: Tensor, *shape: int) -> None:
    """Raise `RuntimeError` if the tensor is not bfloat16 of this shape: the library does not check addresses."""
    if tuple(x.shape) != shape or not is_read(x):
        raise RuntimeError(f"{x.dtype} {tuple(x.shape)} by {x.stride()} on {x.device} instead of bfloat16 {shape}")
