"""NF4 for a model that is in memory. (The engine quantizes while it reads a checkpoint; here is none.)"""

from __future__ import annotations

from typing import Any

import torch

from pipelines.errors import UsageError


def to_nf4(model: Any) -> None:
    """Puts the linear layers but the head into NF4, in place, as bitsandbytes does for the engine.

    Raises:
        UsageError: bitsandbytes is not installed.
    """
    try:
        import bitsandbytes
    except ImportError as error:
        raise UsageError("NF4 needs bitsandbytes: pip install bitsandbytes accelerate") from error
    layers: Any = bitsandbytes.nn
    head = model.get_output_embeddings()
    for name, linear in list(model.named_modules()):
        if type(linear) is not torch.nn.Linear or linear is head:
            continue
        sizes = linear.in_features, linear.out_features
        layer = layers.Linear4bit(*sizes, bias=False, compute_dtype=model.dtype, quant_type="nf4", device="meta")
        # It is quantized on its way to the device, even where it is there.
        weight = layers.Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4")
        layer.weight = weight.to(linear.weight.device)
        model.set_submodule(name, layer)
    model.is_loaded_in_4bit = model.is_quantized = True  # by which the engine and transformers know it
