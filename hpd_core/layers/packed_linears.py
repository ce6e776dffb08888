"""Linear layers of bfloat16 on a CPU, by weights that are already in the order in which they are multiplied.

If the processor multiplies tiles (AMX), kernels of ours are used (native/linear.cpp). They compute a layer, a gated
MLP, and the last layer with the choice of tokens after it. Elsewhere oneDNN does. `torch.nn.functional.linear` reorders
a bf16 weight in every call. The copies take the memory of the linear layers' weights once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpd_core.layout import IntArray
from hpd_core.native import linear
from hpd_core.native.linear import TiledLinear, TiledMLP, pack
from hpd_core.system.device import is_waited_for

_ROWS_EXPECTED = 1024
"""Expected rows of an input, by which oneDNN picks the order. The actual number may differ."""

Forward = Callable[[Tensor], Tensor]
State = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class _Packed:
    """Forward by the packed copy, and the state of the weights that was copied."""

    forward: Forward
    state: State


class PackedLinears:
    """Packed weights of one model; the model itself stays unchanged outside of `active`."""

    def __init__(self, model: Any, gated: Iterable[Any] = ()) -> None:
        """Select the layers; nothing is packed yet.

        Args:
            gated: modules of `model`, MLPs with SwiGLU, which the caller of `gated_mlp` will compute if possible.
        """
        parts = {mlp: _layers_of(mlp) for mlp in gated}
        self._mlps = {mlp: layers for mlp, layers in parts.items() if _can_be_joined(*layers)}
        joined = {layer for layers in self._mlps.values() for layer in layers}
        self._layers = [module for module in model.modules() if _can_be_packed(module) and module not in joined]
        self._packed: dict[Any, _Packed] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use the packed weights in the model's linear layers while the context is entered."""
        try:
            for layer in self._layers:
                layer.__dict__["forward"] = self._forward(layer, (layer,), _pack)
            yield
        finally:
            for layer in self._layers:
                layer.__dict__.pop("forward", None)  # there is none where memory was too short to pack it

    def tiled(self, layer: Any) -> TiledLinear | None:
        """Return this layer by tiles, while `active`; None if it is not computed so, or has hooks on its call."""
        packed = self._packed.get(layer)
        if packed is None or not isinstance(packed.forward, TiledLinear) or is_waited_for(layer):
            return None
        return packed.forward

    def gated_mlp(self, mlp: Any) -> TiledMLP | None:
        """Return x -> down_proj(silu(gate_proj(x)) * up_proj(x)) of this MLP; None if it was not named or is not
        available.
        """
        layers = self._mlps.get(mlp)
        if layers is None or layers != _layers_of(mlp) or not all(map(_is_plain, layers)):
            return None
        packed: TiledMLP = self._forward(mlp, layers, _pack_mlp)
        return packed

    def _forward(self, key: Any, layers: tuple[torch.nn.Linear, ...], pack: Callable[..., Any]) -> Any:
        packed, state = self._packed.get(key), _state(layers)
        if packed is None or packed.state != state:  # new, or trained since
            packed = self._packed[key] = _Packed(pack(*layers), state)
        return packed.forward


def _layers_of(mlp: Any) -> tuple[Any, Any, Any]:
    return mlp.gate_proj, mlp.up_proj, mlp.down_proj


def _can_be_packed(module: Any) -> bool:
    """Return whether this is a plain linear layer in bf16 on a CPU that has oneDNN, whose forward was not replaced."""
    return (
        type(module) is torch.nn.Linear
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.bfloat16
        and not module.weight.is_inference()
        and not (module.bias is not None and module.bias.is_inference())
        and "forward" not in module.__dict__
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _can_be_joined(*layers: Any) -> bool:
    """Return whether these layers can be packed together; they will not be called."""
    return all(_can_be_packed(layer) and _is_plain(layer) for layer in layers) and linear.fits(
        *(layer.weight for layer in layers)
    )


def _is_plain(layer: torch.nn.Linear) -> bool:
    """Return whether a layer has neither hooks, bias nor replaced forward, which may change while the model is in
    use.
    """
    return (
        layer.bias is None
        and not is_waited_for(layer)
        and "forward" not in layer.__dict__
        and layer.weight.dtype == torch.bfloat16
    )


def _pack(layer: torch.nn.Linear) -> Forward:
    weight = layer.weight.detach()
    bias = None if layer.bias is None else layer.bias.detach().contiguous()  # oneDNN would misread another
    if linear.fits(weight) and (bias is None or linear.is_read(bias)):
        return TiledLinear(linear.pack(weight), bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_EXPECTED)

    def forward(x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return product

    return forward


def _pack_mlp(gate: torch.nn.Linear, up: torch.nn.Linear, down: torch.nn.Linear) -> TiledMLP:
    gate_up = linear.pack_gated(gate.weight.detach(), up.weight.detach())
    return TiledMLP(gate_up, linear.pack(down.weight.detach()))


def _state(layers: tuple[torch.nn.Linear, ...]) -> State:
    """Return a state that changes when a weight or bias does, except by an operation on its `data`, which torch does
    not track.
    """
    parts = [part for layer in layers for part in (layer.weight, layer.bias)]
    return tuple(None if part is None else (part.data_ptr(), part._version) for part in parts)


@dataclass(frozen=True, slots=True)
class TiledLogits:
    """Logits that are never stored: the last product is by tiles, and tokens are chosen from its sums.

    Attributes:
        hidden: [n, D], of n rows.
        head: the last layer.
        weight: the same, [V, D].
    """

    hidden: Tensor
    head: TiledLinear
    weight: Tensor

    def of(self, rows: Tensor, ids: IntArray) -> Tensor:
        """Return the logits of some rows, int64 [m], for a few tokens each, `ids` [m, c], equal to those of the whole
        product.
        """
        few, places = np.unique(ids, return_inverse=True)
        columns = torch.from_numpy(few)
        bias = None if self.head.bias is None else self.head.bias[columns]
        product = linear.linear(self.hidden[rows], pack(self.weight[columns]), bias)
        return product.gather(1, torch.from_numpy(places.reshape(ids.shape)))

    def of_pairs(self, rows: IntArray, ids: IntArray) -> Tensor:
        """Return the logits of single tokens, [m]: of token `ids[i]` in row `rows[i]`, as `of` returns them."""
        few, places = np.unique(rows, return_inverse=True)
        tokens, columns = np.unique(ids, return_inverse=True)
        every = np.broadcast_to(tokens, (len(few), len(tokens)))
        return self.of(torch.from_numpy(few), every)[torch.from_numpy(places), torch.from_numpy(columns)]
