"""Tiny checkpoints quantized as GPTQ, AWQ and compressed-tensors write them, and the numbers that they stand for."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.core.models.test_peoples_checkpoints import change

GROUP = 32
"""Numbers that share a scale."""
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_SETTINGS: dict[str, dict[str, Any]] = {
    "gptq": {"bits": 4, "group_size": GROUP, "desc_act": False, "sym": False, "checkpoint_format": "gptq"},
    "awq": {"bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
}
_INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
_SCHEMES: dict[str, dict[str, Any]] = {
    "pack-quantized": {
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
    },
    "int-quantized": {
        "weights": {**_INT8, "strategy": "channel"},
        "input_activations": {**_INT8, "strategy": "token", "dynamic": True},
    },
}
BY_FOUR_BITS = (*_SETTINGS, "pack-quantized")
METHODS = (*BY_FOUR_BITS, "int-quantized")


def save_quantized(model: Any, folder: Path, method: str) -> Any:
    """Writes a Llama's layers as the method has them; returns the model that has the very numbers.

    Raises:
        ImportError: it is written by compressed-tensors, which is not here.
    """
    rounded = copy.deepcopy(model)
    if method in _SCHEMES:
        _compress(copy.deepcopy(model), folder, method)
    else:
        model.save_pretrained(folder)
        weights = load_file(folder / "model.safetensors")
    for name, layer in rounded.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            numbers, zeros, scales = _rounded(layer.weight, method)
            layer.weight.data = ((numbers - zeros) * scales).flatten(1).contiguous()
            if method in _SETTINGS:
                del weights[f"{name}.weight"]
                packed = _packed(numbers.flatten(1).T, zeros.flatten(1).T, scales.flatten(1).T, method)
                weights |= {f"{name}.{kind}": tensor for kind, tensor in packed.items()}
    if method in _SETTINGS:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        change(folder, "config.json", quantization_config={"quant_method": method, **_SETTINGS[method]})
    return rounded


def _rounded(weight: Tensor, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers [N, groups, K], zeros and scales [N, groups, 1]."""
    by_group = weight.detach().view(len(weight), -1, weight.shape[1] if method == "int-quantized" else GROUP)
    low, high = by_group.amin(-1, keepdim=True), by_group.amax(-1, keepdim=True)
    if method in _SCHEMES:  # from -most to most, as compressed-tensors rounds by these scales
        most = 127 if method == "int-quantized" else 7
        scales = torch.maximum(-low, high) / (most + 0.5)
        return (by_group / scales).round().clamp(-most - 1, most), torch.zeros_like(low), scales
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(1, 15)
    return (by_group / scales + zeros).round().clamp(0, 15), zeros, scales


def _packed(numbers: Tensor, zeros: Tensor, scales: Tensor, method: str) -> dict[str, Tensor]:
    """Of numbers [K, N] and zeros and scales [groups, N]."""
    if method == "awq":
        return {
            "qweight": _in_words(numbers, 1, _AWQ_ORDER),
            "qzeros": _in_words(zeros, 1, _AWQ_ORDER),
            "scales": scales.half().contiguous(),
        }
    return {
        "qweight": _in_words(numbers, 0, range(8)),
        "qzeros": _in_words(zeros - 1, 1, range(8)),
        "scales": scales.half().contiguous(),
        "g_idx": (torch.arange(len(numbers)) // GROUP).int(),
    }


def _in_words(numbers: Tensor, dim: int, order: Iterable[int]) -> Tensor:
    """int32, of eight numbers of four bits each along a dimension; the first stands lowest."""
    along = numbers.movedim(dim, -1)
    eight = along.reshape(*along.shape[:-1], -1, 8)[..., list(order)].long()
    words = (eight << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int().movedim(-1, dim).contiguous()


def _compress(model: Any, folder: Path, method: str) -> None:
    quantization = importlib.import_module("compressed_tensors.quantization")
    compressors = importlib.import_module("compressed_tensors.compressors")
    scheme = quantization.QuantizationScheme.model_validate({"targets": ["Linear"], **_SCHEMES[method]})
    config = quantization.QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"])
    quantization.apply_quantization_config(model, config)
    for layer in model.modules():
        if getattr(layer, "quantization_scheme", None) is not None:
            layer.weight_scale.data = _rounded(layer.weight, method)[2][..., 0].to(layer.weight_scale.dtype)
    compressor = compressors.ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
