"""Weights of an adapter under the keys that peft gives them, whatever wrote the file.

Layers may be trained whole beside the low-rank matrices: peft's `modules_to_save`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hpd_core.models import adapter_weights
from hpd_core.models.adapter_folder import WHOLE_LAYERS, Adapter, first_line, refusal
from hpd_core.models.local_folders import ADAPTER_WEIGHTS

# A matrix, its layer, and the name that the adapter had in training where whole state dicts were saved.
_LORA_KEY = re.compile(
    r"(?P<layer>.+)\.(?:(?P<linear>lora_[AB])(?:\.(?P<name>[^.]+))?\.weight"
    r"|(?P<embedding>lora_embedding_[AB])(?:\.(?P<embedding_name>[^.]+))?"
    r"|(?P<magnitude>lora_magnitude_vector)(?:\.(?P<magnitude_name>(?!weight$)[^.]+))?(?:\.weight)?)"
)
_PREFIX = "base_model.model."
# What stands in front of a model's own names: peft's wrapper, inside of what trained it (Lightning, DeepSpeed).
_OUTSIDE = re.compile(rf".*(?<![^.]){re.escape(_PREFIX)}")
# What training puts around modules: torch.compile, FSDP, activation checkpointing, DeepSpeed.
_WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"))
# Why weights are not taken, by what is found in their key.
_FOREIGN = {
    r"\.lora_[AB](\.[^.]+)?\.bias": "its matrices have biases; only plain LoRA is supported, "
    "train it without lora_bias",
    r"lora_down": "it is in another format than peft's; convert it to that",
    r"lora_up": "it is in another format than peft's; convert it to that",
    r"\.lora_a": "it is in another format than peft's; convert it to that",
    r"\.lora_b": "it is in another format than peft's; convert it to that",
}


def read_weights(adapter: Adapter) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the adapter's low-rank matrices, as peft saves them, and its whole layers, by the model's names."""
    try:
        weights = load_file(adapter.folder / ADAPTER_WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise refusal(
            adapter.id, f"its {ADAPTER_WEIGHTS} cannot be read: {first_line(error)}; copy or save it again"
        ) from error
    if not weights:
        raise refusal(adapter.id, f"its {ADAPTER_WEIGHTS} is empty; save it again")
    for key, weight in weights.items():
        if not weight.isfinite().all():
            raise refusal(adapter.id, f"its weight {key} is not finite; its training has diverged")
    names = adapter_weights.names_of(weights, adapter.settings.get(WHOLE_LAYERS) or [])
    whole = {_layer_of(name): weights.pop(key) for key, name in names.items()}
    lost = [name for name in adapter.settings.get(WHOLE_LAYERS) or [] if not any(name in key for key in whole)]
    if lost:
        raise refusal(adapter.id, f"it has no weights for the whole layer {lost[0]}; save it again with peft")
    return _as_peft_saves(adapter, weights), whole


def _as_peft_saves(adapter: Adapter, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the keys of peft's save_pretrained, whatever wrote the file."""
    found: dict[str, Tensor] = {}
    names = {_adapter_name(adapter, key): None for key in weights}
    if len(names) > 1:
        listed = ", ".join(name or "(without a name)" for name in names)
        raise refusal(
            adapter.id,
            f"it holds several adapters: {listed}; save one alone, with save_pretrained(selected_adapters=[...])",
        )
    for key, weight in weights.items():
        plain = _plain_key(key)
        if plain in found:
            raise refusal(adapter.id, f"it holds {plain} twice; save it again with peft's save_pretrained")
        found[plain] = weight
    return found


def _adapter_name(adapter: Adapter, key: str) -> str:
    """Return the adapter's name in training, if the key contains it, else an empty string."""
    match = _LORA_KEY.fullmatch(key)
    if match is None:
        raise refusal(adapter.id, _foreign(key))
    return match["name"] or match["embedding_name"] or match["magnitude_name"] or ""


def _plain_key(key: str) -> str:
    match = _LORA_KEY.fullmatch(key)
    assert match is not None
    matrix = match["embedding"] or match["magnitude"] or f"{match['linear']}.weight"
    return f"{_PREFIX}{_layer_of(match['layer'])}.{matrix}"


def _layer_of(name: str) -> str:
    """Return the model's own name of a layer, or of a weight, without the wrappers of training."""
    inside = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    return _OUTSIDE.sub("", inside.removeprefix("module.")).removeprefix("module.")


def _foreign(key: str) -> str:
    """Return why an adapter with a weight of this key is refused."""
    for part, reason in _FOREIGN.items():
        if re.search(part, key):
            return f"{reason} (it holds {key})"
    return (
        f"it holds more than LoRA matrices, such as {key}; save it without whole layers or embeddings "
        f"(save_embedding_layers=False), or name them in modules_to_save"
    )


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
