"""Models and checkpoints that are refused, and why: layers that do not obey our masks, files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError

from hpd_core.errors import ModelError
from hpd_core.mixers.families import layer_types_of
from hpd_core.models import attention_families
from hpd_core.models.model_files import what_models_are
from hpd_core.system.device import is_out_of_memory

_DISTANCES = (
    "each token learns how much it wants to hear from every distance, and adds that to its scores; our attention adds "
    "to scores what a key brings along, and nothing that depends on both"
)
_ANOTHER = "take a model of a family in docs/models.md"
_WHY = {
    "deepseek_v4": "behind a window, tokens see entries that each stand for several tokens, in which the end of a "
    "document and the begin of a branch would stand together: each branch would need entries of its own. "
    "Take DeepSeek V3.2, or another model of a family in docs/models.md",
    "inkling_text": f"{_DISTANCES}: {_ANOTHER}",
    "inkling2_text": f"{_DISTANCES}: {_ANOTHER}",
    **dict.fromkeys(("rwkv", "xlstm", "zaya"), f"HPD no longer runs their layers beside attention: {_ANOTHER}"),
}
"""Reasons by the `model_type` of a model's text."""
_KNOWN_LAYER_TYPES = frozenset(
    {
        *("full_attention", "sliding_attention", "chunked_attention"),
        "reference_sliding_attention",  # whose window is of generated tokens alone: a plain forward has none
        *("mlp", "moe"),
    }
)
"""Layer types that our masks steer, and those in which tokens do not see others."""


def refuse_unsupported(model_config: Any) -> None:
    """Raise `ModelError` for such a model."""
    if why := _WHY.get(model_config.get_text_config().model_type):
        raise ModelError(f"{model_config.model_type} models cannot be used: {why}")
    text_config = model_config.get_text_config()
    kinds = set(getattr(text_config, "layer_types", None) or ()) - _KNOWN_LAYER_TYPES - layer_types_of(model_config)
    if attention_families.most_seen(model_config) is not None:
        kinds -= attention_families.LAYER_TYPES
    if kinds:
        raise ModelError(
            f"{model_config.model_type} has layers of type {', '.join(sorted(kinds))}. HPD steers what each token sees "
            f"through the attention mask; these layers do not obey it. Use a model with plain "
            f"(or sliding-window) attention in every layer"
        )
    if getattr(text_config, "is_encoder_decoder", False):
        raise ModelError(f"{model_config.model_type} is an encoder-decoder model; HPD needs a decoder-only one")


_WINDOWS = ("sliding_window", "attention_chunk_size")
"""Settings of a layer that sees a window or a chunk of that many positions, and depends on a token's position."""

_WAY_OUT = "set it to 'causal', or take a model whose layers all see all tokens (Llama, Qwen, Granite and others)"


def refuse(model: Any) -> None:
    """Raise `ModelError` if the loaded model cannot read documents both ways."""
    refuse_config(model.config)
    if attention_families.described(model):
        raise _refusal(model.config, "attends by code of its own, which may add to scores by how far tokens are apart")


def refuse_config(model_config: Any) -> None:
    """Raise `ModelError` for a model that is not loaded yet, if its configuration already shows why."""
    kinds = layer_types_of(model_config)
    if kinds:
        what = f"has layers of type {', '.join(sorted(kinds))}, whose tokens hear of others in the order of the text"
        raise _refusal(model_config, what)
    if attention_families.settings_of(model_config):
        raise _refusal(model_config, "picks the tokens that each token attends to")
    for name, reach in _reaches(model_config).items():
        raise _refusal(model_config, f"has layers that see no further than {name} {reach} before a token")


def _reaches(model_config: Any) -> dict[str, int]:
    """Return the windows that hide something, by their settings' names."""
    config = model_config.get_text_config()
    if set(getattr(config, "layer_types", None) or ["unknown"]) == {"full_attention"}:
        return {}
    most = getattr(config, "max_position_embeddings", None)
    found = {name: getattr(config, name, None) for name in _WINDOWS}
    return {name: reach for name, reach in found.items() if reach and (most is None or reach < most)}


def _refusal(model_config: Any, what: str) -> ModelError:
    return ModelError(f"engine.document_attention is 'bidirectional', and {model_config.model_type} {what}: {_WAY_OUT}")


@contextmanager
def reading(model: str) -> Iterator[None]:
    """Raise `ModelError` for any error in the context except out of memory: transformers raises any error for files
    that it cannot parse.
    """
    try:
        yield
    except ModelError:
        raise
    except SafetensorError as error:
        raise ModelError(f"a file of the weights of {model!r} is not whole: copy it again ({error})") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(not_found(model, error)) from error


def not_found(model: str, error: Exception) -> str:
    """Return the message: that the model cannot be loaded, why, and what a model is."""
    return f"cannot load the model {model!r}: {first_line(error)} ({what_models_are()})"


def first_line(error: Exception) -> str:
    """Return an error's first line. Append the next line if the first ends with a colon; prepend the error's name if
    the message alone says little.
    """
    name = type(error).__name__
    first, *others = (str(error).strip() or name).splitlines()
    text = f"{first} {others[0].strip()}" if others and first.endswith(":") else first
    return f"{name}: {text}" if isinstance(error, LookupError | TypeError | AttributeError) else text
