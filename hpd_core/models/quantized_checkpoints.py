"""Checkpoints that are in FP8 already, in the format of compressed-tensors, as llm-compressor writes it.

A linear layer's `weight` is float8_e4m3fn, beside it is its `weight_scale`. transformers reads the weights like any
others: in the requested dtype, which represents every FP8 number exactly. They are put back into FP8 here, together
with their scales. Layers that the checkpoint leaves in full precision stay so.

Checkpoints quantized by GPTQ, AWQ or compressed-tensors: transformers reads them, with packages of their makers.

Their layers take each token by itself, as linear layers do, so that an answer is the same in any batch. Those that do
not are refused here.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn
from transformers.utils import cached_file

from hpd_core.errors import ModelError
from hpd_core.layers.fp8 import DTYPE, Fp8Linear, decoder_linears

logger = logging.getLogger(__name__)

_WAY_OUT = "take the model in bfloat16 with engine.quantization: fp8"
_STORED_AS = "F8_E4M3"
_SCALE = ".weight_scale"


def is_fp8_checkpoint(model_config: Any) -> bool:
    """Return whether the weights are stored in FP8, in a form that `_put_back` can read.

    Raises:
        ModelError: they are in FP8, and cannot be used so; the message says why.
    """
    stored = quantization_of(model_config)
    method = str(stored.get("quant_method", ""))
    if method == "compressed-tensors":
        groups = [group for group in (stored.get("config_groups") or {}).values() if isinstance(group, Mapping)]
        in_fp8 = [group for group in groups if _is_fp8(group.get("weights"))]
        if not in_fp8:
            return False
        if len(in_fp8) < len(groups):
            raise _refusal("a part of its weights is quantized in another way")
        for group in in_fp8:
            if (reason := _problem(group)) is not None:
                raise _refusal(reason)
        return True
    if "fp8" in method:
        block = stored.get("weight_block_size")
        what = f"blocks of {' x '.join(map(str, block))} weights share a scale" if block else f"it is in {method!r}"
        raise _refusal(f"{what}, where HPD has one for every output channel (compressed-tensors)")
    return False


def quantization_of(model_config: Any) -> Mapping[str, Any]:
    """Return the checkpoint's quantization settings; empty if it is not quantized."""
    stored = getattr(model_config, "quantization_config", None) or {}
    return stored if isinstance(stored, Mapping) else stored.to_dict()


def _is_fp8(weights: Any) -> bool:
    return isinstance(weights, Mapping) and weights.get("type") == "float" and weights.get("num_bits") == 8


def _problem(group: Mapping[str, Any]) -> str | None:
    """Return why layers quantized in this way would be computed otherwise than intended, or None."""
    weights, inputs = group["weights"], group.get("input_activations")
    if weights.get("strategy") not in ("channel", "tensor"):
        return f"its weights have scales by {weights.get('strategy')}; there is code for 'channel' and 'tensor'"
    if weights.get("symmetric") is False:
        return "its weights have zero points"
    if inputs is None or not _is_fp8(inputs):
        return "its activations are not in FP8"
    if not inputs.get("dynamic"):
        return "its activations have scales that were fixed by calibration (static), where HPD takes each token's own"
    if inputs.get("strategy") != "token":
        return f"its activations have scales by {inputs.get('strategy')}, which other products in the batch would move"
    return None


def _refusal(reason: str) -> ModelError:
    return ModelError(f"this checkpoint in FP8 cannot be used: {reason}; {_WAY_OUT}")


def load(source: str, model_config: Any, options: Mapping[str, Any]) -> Any:
    """Load the model, on the CPU, of a checkpoint for which `is_fp8_checkpoint` is true.

    Args:
        source: a folder or hub id.
        options: for transformers.

    Raises:
        ModelError: weights or scales are missing, or do not fit.
        OSError, ValueError: as transformers.
    """
    # transformers would look for a package of its own.
    model_config = copy.deepcopy(model_config)
    del model_config.quantization_config
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # it warns of scales that it has no use for
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            source, config=model_config, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    finally:
        transformers.logging.set_verbosity(verbosity)
    missing = [*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]
    if missing:
        raise _refusal(f"it lacks {missing[0]}, or has it in another shape")
    unused = sorted(key for key in report["unexpected_keys"] if not key.endswith(_SCALE))
    if unused:
        logger.warning("%d tensors of the checkpoint are not used, such as %s", len(unused), unused[0])
    _put_back(model, _stored_scales(_weight_files(model, source)))
    return model


def refuse_unnamed(model: Any, source: str) -> None:
    """Raise `ModelError` if weights that were read as plain ones have scales that the configuration does not
    mention.
    """
    if quantization_of(model.config):
        return
    in_fp8, others = _keys(_weight_files(model, source))
    if in_fp8 and (scales := [key for key in others if "scale" in key.rpartition(".")[2]]):
        raise _refusal(f"config.json has no quantization_config, which says what {min(scales)} is for")


@torch.no_grad()
def _put_back(model: Any, scales: Mapping[str, Tensor]) -> None:
    """Put the layers that are stored in FP8 back into it, in place."""
    of_layers = set(decoder_linears(model, model.device))
    if not scales.keys() & of_layers:
        raise _refusal("none of the decoder's layers is stored in FP8")
    for name, scale in scales.items():
        try:
            layer = model.get_submodule(name)
        except AttributeError:
            layer = None
        if type(layer) is not nn.Linear:
            raise _refusal(f"{name} is stored in FP8, and is no linear layer of a {model.config.model_type} model")
        by_channel = _by_channel(name, scale, layer.out_features)
        if name in of_layers:
            model.set_submodule(name, Fp8Linear(layer.weight.to(DTYPE), by_channel, layer.bias))
        else:
            # The head, which is multiplied in full precision.
            layer.weight = nn.Parameter((layer.weight.float() * by_channel[:, None]).to(layer.weight.dtype))


def _by_channel(name: str, scale: Tensor, num_channels: int) -> Tensor:
    """Return the scales as float32 [N], from [N, 1], [N], [1] or a number."""
    scales = scale.float().flatten()
    if scales.numel() not in (1, num_channels):
        raise _refusal(f"{name}{_SCALE} has {scales.numel()} numbers for {num_channels} output channels")
    if not (scales.isfinite() & (scales >= 0)).all():
        raise _refusal(f"{name}{_SCALE} has numbers that are negative or not finite")
    return scales.expand(num_channels).contiguous()


def _keys(paths: Iterable[Path]) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the file of each tensor in FP8, and of each other tensor."""
    in_fp8: dict[str, Path] = {}
    others: dict[str, Path] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (it is no dict)
                (in_fp8 if file.get_slice(key).get_dtype() == _STORED_AS else others)[key] = path
    return in_fp8, others


def _stored_scales(paths: Iterable[Path]) -> dict[str, Tensor]:
    """Return the scale of each layer that is stored in FP8, by the layer's name."""
    keys_in_fp8, others = _keys(paths)
    in_fp8 = {key.removesuffix(".weight") for key in keys_in_fp8}
    scales: dict[str, Tensor] = {}
    for key in others:
        if key.endswith(_SCALE):
            with safe_open(others[key], framework="pt") as file:
                scales[key.removesuffix(_SCALE)] = file.get_tensor(key)
    for name in sorted(in_fp8 ^ scales.keys()):
        raise _refusal(f"{name} has a scale, and no weight in FP8" if name in scales else f"{name} has no scale")
    return scales


def _weight_files(model: Any, source: str) -> list[Path]:
    """Return the weight files that transformers has read; for a hub id, those in its cache."""

    def find(name: str) -> Path | None:
        commit = getattr(model.config, "_commit_hash", None)
        found = cached_file(
            source, name, revision=commit, local_files_only=True, _raise_exceptions_for_missing_entries=False
        )
        return None if found is None else Path(found)

    if (whole := find("model.safetensors")) is not None:
        return [whole]
    index = find("model.safetensors.index.json")
    names = sorted(set(json.loads(index.read_bytes())["weight_map"].values())) if index is not None else []
    return [path for path in map(find, names) if path is not None]


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
    if is_fp8_checkpoint(model_config):
        return  # refused in words of its own
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
