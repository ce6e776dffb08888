"""Checkpoints quantized by GPTQ, AWQ or compressed-tensors: transformers reads them, with packages of their makers.

Their layers take each token by itself, as linear layers do, so that an answer is the same in any batch. Those that do
not are refused here.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from hpd_core.errors import ModelError

logger = logging.getLogger(__name__)


def refuse_fp8(model_config: Any) -> None:
    """Raise `ModelError` if the weights are stored in FP8, which transformers would read without their scales."""
    stored = quantization_of(model_config)
    groups = (stored.get("config_groups") or {}).values()
    in_fp8 = (_is_fp8(group.get("weights")) for group in groups if isinstance(group, Mapping))
    if "fp8" in str(stored.get("quant_method", "")) or any(in_fp8):
        raise ModelError(
            "this checkpoint is stored in FP8, which is not read: take the model in bfloat16 with "
            "engine.quantization: fp8, which computes the same"
        )


def quantization_of(model_config: Any) -> Mapping[str, Any]:
    """Return the checkpoint's quantization settings; empty if it is not quantized."""
    stored = getattr(model_config, "quantization_config", None) or {}
    return stored if isinstance(stored, Mapping) else stored.to_dict()


def _is_fp8(weights: Any) -> bool:
    return isinstance(weights, Mapping) and weights.get("type") == "float" and weights.get("num_bits") == 8


PACKAGES = {"gptq": "gptqmodel optimum", "awq": "gptqmodel", "compressed-tensors": "compressed-tensors"}
"""Packages that read such checkpoints, as pip calls them, by `quant_method`."""


def readable(model_config: Any) -> Any:
    """Return the configuration to read the checkpoint by.

    Raises:
        ModelError: an answer would depend on the other products of a batch.
    """
    stored = quantization_of(model_config)
    for rounded in _activations(stored):
        if rounded.get("dynamic") is True and rounded.get("strategy") == "tensor":
            raise ModelError(
                "this checkpoint cannot be used: its activations have one scale for all tokens of a batch (dynamic, by "
                "tensor), which other products would move; take one with strategy 'token', or the model in bfloat16 "
                "with engine.quantization: nf4"
            )
    if not stored.get("kv_cache_scheme"):
        return model_config
    logger.warning("the checkpoint's kv_cache_scheme is not used: keys and values are kept in full precision")
    found = copy.deepcopy(model_config)
    found.quantization_config = {**stored, "kv_cache_scheme": None}
    return found


def refuse_training(model_config: Any) -> None:
    """Raise `ModelError` if gradients do not pass through the layers: kernels of packed weights have none, and that of
    rounding is 0.
    """
    stored = quantization_of(model_config)
    if stored.get("quant_method") in ("gptq", "awq") or next(_activations(stored), None) is not None:
        raise ModelError(
            f"the checkpoint is quantized ({stored['quant_method']}), and its layers have no gradient: train the model "
            f"in bfloat16, where memory is short with engine.quantization: nf4"
        )


@torch.no_grad()
def unpack(model: Any) -> None:
    """Run a forward, in which compressed-tensors unpacks its layers, so that adapters and sizes find whole layers."""
    if quantization_of(model.config).get("quant_method") == "compressed-tensors":
        model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)


def rounds_activations(model: Any) -> bool:
    """Return whether the inputs of the model's layers are rounded to few bits."""
    return next(_activations(quantization_of(model.config)), None) is not None


def packed_layers(model: Any) -> list[Any]:
    """Return the layers whose weights are packed into tensors that are not parameters, as GPTQ's and AWQ's are."""
    return [layer for layer in model.modules() if "qweight" in layer._buffers]


def _activations(stored: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the quantization of inputs and outputs of each group of layers that has one."""
    for group in (stored.get("config_groups") or {}).values():
        for name in ("input_activations", "output_activations"):
            if isinstance(group, Mapping) and isinstance(group.get(name), Mapping):
                yield group[name]
