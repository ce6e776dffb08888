"""Linear layers of bfloat16 on a CPU, by weights that are already in the order in which they are multiplied.

Where the processor multiplies tiles (AMX), by kernels of ours (native/linear.cpp), for a layer, a gated MLP, and the
last layer with the choice of tokens behind it; elsewhere by oneDNN. `torch.nn.functional.linear` reorders a bf16 weight
anew in every call. The copies take the memory of the linear layers' weights once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as of_all

from hpd_core.native import linear
from hpd_core.native.linear import TiledLinear, TiledMLP

_ROWS_EXPECTED = 1024
"""Of an input; oneDNN picks the order by it. What comes in the end may be anything."""

Forward = Callable[[Tensor], Tensor]
State = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class _Packed:
    """A forward by the packed copy, and which state of the weights was copied."""

    forward: Forward
    state: State


class PackedLinears:
    """The packed weights of one model; the model itself stays as it is outside of `active`."""

    def __init__(self, model: Any, gated: Iterable[Any] = ()) -> None:
        """Packs nothing yet.

        Args:
            gated: modules of `model`, MLPs with SwiGLU, which are to be computed by whoever asks for `gated_mlp`, where
                that can be done.
        """
        parts = {mlp: _layers_of(mlp) for mlp in gated}
        self._mlps = {mlp: layers for mlp, layers in parts.items() if _can_be_joined(*layers)}
        joined = {layer for layers in self._mlps.values() for layer in layers}
        self._layers = [module for module in model.modules() if _can_be_packed(module) and module not in joined]
        self._packed: dict[Any, _Packed] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """The model's linear layers use the packed weights for as long as the block runs."""
        try:
            for layer in self._layers:
                layer.__dict__["forward"] = self._forward(layer, (layer,), _pack)
            yield
        finally:
            for layer in self._layers:
                layer.__dict__.pop("forward", None)  # there is none where memory was too short to pack it

    def tiled(self, layer: Any) -> TiledLinear | None:
        """This layer by tiles, while `active`; None if it is not computed so, or somebody waits for its call."""
        packed = self._packed.get(layer)
        if packed is None or not isinstance(packed.forward, TiledLinear) or is_waited_for(layer):
            return None
        return packed.forward

    def gated_mlp(self, mlp: Any) -> TiledMLP | None:
        """x -> down_proj(silu(gate_proj(x)) * up_proj(x)) of this MLP, if it was named and can be had."""
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
    """Plain linear layers in bf16 on a CPU that has oneDNN; none whose forward somebody else has replaced."""
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
    """Of layers that will not be called."""
    return all(_can_be_packed(layer) and _is_plain(layer) for layer in layers) and linear.fits(
        *(layer.weight for layer in layers)
    )


def _is_plain(layer: torch.nn.Linear) -> bool:
    """What may change while the model is in use: nobody waits for the call, and there is nothing but a weight."""
    return (
        layer.bias is None
        and not is_waited_for(layer)
        and "forward" not in layer.__dict__
        and layer.weight.dtype == torch.bfloat16
    )


def is_waited_for(layer: torch.nn.Module) -> bool:
    """Whether somebody has a hook on its call, and so it has to be called."""
    own = layer._forward_hooks or layer._forward_pre_hooks
    return bool(own or of_all._global_forward_hooks or of_all._global_forward_pre_hooks)


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
    """Changes when a weight or bias does, but by an operation on its `data`, of which torch knows nothing."""
    parts = [part for layer in layers for part in (layer.weight, layer.bias)]
    return tuple(None if part is None else (part.data_ptr(), part._version) for part in parts)
