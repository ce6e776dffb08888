"""LoRA adapters in peft's format: small matrices, trained beside a model's weights, that change its answers.

An adapter is merged into the weights, so that answering costs nothing more: in float32, and rounded once to the model's
precision (before they are put into FP8). Bitsandbytes' weights do not allow merging, so there it stays separate. LoRA
on linear and embedding layers is supported, with rsLoRA's scale and DoRA's magnitudes, and whole layers that were
trained beside it (peft's `modules_to_save`). Anything else an adapter asks for is refused, because peft would silently
leave out some of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hpd_core.errors import ModelError, first_line
from hpd_core.models.adapter_folder import SHAPE_SETTINGS, WHOLE_LAYERS, Adapter, refusal
from hpd_core.models.model_files import ADAPTER_WEIGHTS


def add_adapter(model: Any, adapter: Adapter, base_revision: str | None, merge: bool | None = None) -> None:
    """Put the adapter into a loaded model, in place. After an error the model must not be used any more.

    Args:
        model: a transformers model fresh from loading (bitsandbytes repacks 4-bit weights when they are first used, and
            layers put around them then go wrong).
        adapter: as `open_adapter` gives it, still open.
        base_revision: the model's `model_revision`, for adapters that know which one they were trained on.
        merge: into the weights, or beside them; by default into them unless they are quantized.

    Raises:
        ModelError: peft is missing, the adapter was trained on other weights, or not all of it fits the model.
    """
    check_base(adapter, base_revision)
    quantized = bool(getattr(model, "is_quantized", False))
    if merge and quantized:
        raise refusal(adapter.id, "it cannot be merged into quantized weights; leave it beside them")
    if quantized and adapter.settings.get("use_dora"):
        raise refusal(adapter.id, "DoRA scales the model's weights, which are quantized; load the model in bfloat16")
    weights, whole = read_weights(adapter)
    if weights:
        _inject(model, adapter, weights)
        if merge or (merge is None and not quantized):
            _merge(model, adapter)
    try:
        put_into(model, whole)
    except ValueError as error:
        raise _misfit(adapter, model, str(error)) from error
    model.eval()


def check_base(adapter: Adapter, base_revision: str | None) -> None:
    """Raise `ModelError` if the adapter is known to have been trained on another model."""
    record = adapter.record
    if record is not None and record.base_revision is not None and record.base_revision != base_revision:
        raise refusal(
            adapter.id,
            f"it was trained on {record.base_model} with revision {record.base_revision}, this model has revision "
            f"{base_revision}; load the model that it was trained on, or train it on this one",
        )


def lora_settings(adapter: Adapter) -> dict[str, Any]:
    """Return the adapter's shape, as keywords of peft's LoraConfig."""
    return {key: adapter.settings[key] for key in SHAPE_SETTINGS if key in adapter.settings}


def _inject(model: Any, adapter: Adapter, weights: dict[str, Tensor]) -> None:
    """Put LoRA layers with the adapter's weights, in float32, around the model's layers."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.tuners_utils import cast_adapter_dtype
    except ImportError as error:
        raise ModelError("an adapter needs the package 'peft': pip install peft") from error
    config = LoraConfig(**lora_settings(adapter), task_type="CAUSAL_LM", inference_mode=True)
    try:
        inject_adapter_in_model(config, model)
        cast_adapter_dtype(model, "default")
    except (ValueError, RuntimeError, TypeError, AttributeError, re.error) as error:
        raise _misfit(adapter, model, first_line(error)) from error
    _fill(model, adapter, weights)


def load_weights(model: Any, adapter: Adapter) -> None:
    """Put the adapter's weights into the LoRA layers of `model`, a peft model, to be trained further.

    Raises:
        ModelError: a weight finds no layer, or a layer no weight; or it holds whole layers.
    """
    weights, whole = read_weights(adapter)
    if whole:
        raise refusal(
            adapter.id,
            f"it holds whole layers, such as {min(whole)}, which are not trained further; merge it into its model with "
            f"peft's merge_and_unload, and train that",
        )
    _fill(model, adapter, weights)


def _fill(model: Any, adapter: Adapter, weights: dict[str, Tensor]) -> None:
    from peft import set_peft_model_state_dict

    try:
        result: Any = set_peft_model_state_dict(model, weights)
    except (ValueError, RuntimeError, TypeError) as error:
        raise _misfit(adapter, model, first_line(error)) from error
    if result.unexpected_keys:
        raise _misfit(
            adapter,
            model,
            f"{len(result.unexpected_keys)} of its {len(weights)} weights find no layer, such as "
            f"{result.unexpected_keys[0]}",
        )
    bare = [key for key in result.missing_keys if ".lora_" in key]
    if bare:
        raise _misfit(adapter, model, f"it targets layers without having weights for them, such as {bare[0]}")


@torch.no_grad()
def _merge(model: Any, adapter: Adapter) -> None:
    """Add the adapter to the weights it belongs to, and remove its layers again."""
    from peft.tuners.lora import LoraLayer

    layers: list[tuple[str, Any]] = [pair for pair in model.named_modules() if isinstance(pair[1], LoraLayer)]
    for name, layer in layers:
        base = layer.get_base_layer()
        dtype = base.weight.dtype
        # A new parameter: one that is shared (tied embeddings) must not change in the other place.
        base.weight = nn.Parameter(base.weight.detach().to(torch.float32, copy=True), requires_grad=False)
        layer.merge()
        base.weight = nn.Parameter(base.weight.detach().to(dtype), requires_grad=False)
        if not base.weight.isfinite().all():
            raise refusal(adapter.id, f"merged into {name} it is beyond the range of {dtype}; use another dtype")
        model.set_submodule(name, base)
    del model.peft_config


def _misfit(adapter: Adapter, model: Any, reason: str) -> ModelError:
    return refusal(
        adapter.id,
        f"it does not fit this {model.config.model_type} model: {reason}; load the model that it was trained on",
    )


_PREFIX = "base_model.model."
_LORA_KEY = re.compile(
    rf"{re.escape(_PREFIX)}.+\.(lora_[AB]\.weight|lora_embedding_[AB]|lora_magnitude_vector(\.weight)?)"
)
"""Key of a matrix as peft's save_pretrained writes it."""


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
    names = names_of(weights, adapter.settings.get(WHOLE_LAYERS) or [])
    whole = {name.removeprefix(_PREFIX): weights.pop(key) for key, name in names.items()}
    lost = [name for name in adapter.settings.get(WHOLE_LAYERS) or [] if not any(name in key for key in whole)]
    if lost:
        raise refusal(adapter.id, f"it has no weights for the whole layer {lost[0]}; save it again with peft")
    if foreign := [key for key in weights if not _LORA_KEY.fullmatch(key)]:
        raise refusal(
            adapter.id,
            f"it holds more than LoRA matrices, such as {foreign[0]}; save it with peft's save_pretrained, without "
            f"whole layers or embeddings (save_embedding_layers=False), or name them in modules_to_save",
        )
    return weights, whole


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
