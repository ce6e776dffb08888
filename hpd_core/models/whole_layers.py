"""Layers that were trained whole beside an adapter's low-rank matrices: peft's `modules_to_save`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# What peft puts between a layer and its trained copy, and what that was called in training.
_COPY = re.compile(r"\.modules_to_save(\.[^.]+(?=\.[^.]+$))?")


def names_of(keys: Iterable[str], layers: Sequence[str]) -> dict[str, str]:
    """Return those of an adapter's keys that belong to such layers, with names without peft's additions.

    Args:
        layers: `modules_to_save`: each is the end of a layer's name.
    """
    plain = {key: _COPY.sub("", key) for key in keys if "lora_" not in key}
    return {key: name for key, name in plain.items() if name.rpartition(".")[0].endswith(tuple(layers))}


@torch.no_grad()
def put_into(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Put the weights into the model in place of its own; weights tied to them stay unchanged.

    Raises:
        ValueError: the model has no such weight, or another one; the message says which.
    """
    for name, weight in weights.items():
        layer_name, _, kind = name.rpartition(".")
        try:
            layer = model.get_submodule(layer_name)
            own = getattr(layer, kind)
        except AttributeError as error:
            raise ValueError(f"it has a whole {name}, which the model has not") from error
        if not isinstance(own, nn.Parameter) or not own.is_floating_point():
            raise ValueError(f"{name} is quantized, and is not replaced")
        if own.shape != weight.shape:
            reason = ""
            if own.dim() == 2 and own.shape[1:] == weight.shape[1:]:
                reason = " (it has learned added tokens: merge it into its model, and save that with its tokenizer)"
            raise ValueError(f"its {name} is {tuple(weight.shape)}, and the model's {tuple(own.shape)}{reason}")
        setattr(layer, kind, nn.Parameter(weight.to(own.device, own.dtype), requires_grad=False))
