"""Linear layers on a CPU, by weights that are already in the order in which oneDNN multiplies.

`torch.nn.functional.linear` reorders a bf16 weight anew in every call. A copy in that order makes a step of few tokens
a third faster and one of many tokens a few percent; it takes the memory of the linear layers' weights once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_ROWS_EXPECTED = 1024
"""Of an input; oneDNN picks the order by it. What comes in the end may be anything."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """A layer's forward by the packed copy, and which state of the weight was copied."""

    forward: Callable[[Tensor], Tensor]
    state: tuple[int, int]


class PackedLinears:
    """The packed weights of one model; the model itself stays as it is outside of `active`."""

    def __init__(self, model: Any) -> None:
        """Packs nothing yet."""
        self._layers = [module for module in model.modules() if _can_be_packed(module)]
        self._packed: dict[torch.nn.Linear, _Packed] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """The model's linear layers use the packed weights for as long as the block runs."""
        try:
            for layer in self._layers:
                packed = self._packed.get(layer)
                if packed is None or packed.state != _state(layer.weight):  # new, or trained since
                    packed = self._packed[layer] = _pack(layer)
                layer.__dict__["forward"] = packed.forward
            yield
        finally:
            for layer in self._layers:
                layer.__dict__.pop("forward", None)  # there is none where memory was too short to pack it


def _can_be_packed(module: Any) -> bool:
    """Plain linear layers in bf16 on a CPU that has oneDNN; none whose forward somebody else has replaced."""
    return (
        type(module) is torch.nn.Linear
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.bfloat16
        and not module.weight.is_inference()
        and "forward" not in module.__dict__
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _pack(layer: torch.nn.Linear) -> _Packed:
    weight = layer.weight
    bias = None if layer.bias is None else layer.bias.detach()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS_EXPECTED)

    def forward(x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return product

    return _Packed(forward, _state(weight))


def _state(weight: Tensor) -> tuple[int, int]:
    """Changes when the weight does."""
    return weight.data_ptr(), weight._version
