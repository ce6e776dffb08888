"""Models that are refused: their layers do not obey our masks. The error says what to take instead."""

from __future__ import annotations

from typing import Any

from hpd_core.errors import ModelError
from hpd_core.mixers.families import layer_types_of
from hpd_core.models import sparse_attention

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
    if sparse_attention.most_seen(model_config) is not None:
        kinds -= sparse_attention.LAYER_TYPES
    if kinds:
        raise ModelError(
            f"{model_config.model_type} has layers of type {', '.join(sorted(kinds))}. HPD steers what each token sees "
            f"through the attention mask; these layers do not obey it. Use a model with plain "
            f"(or sliding-window) attention in every layer"
        )
    if getattr(text_config, "is_encoder_decoder", False):
        raise ModelError(f"{model_config.model_type} is an encoder-decoder model; HPD needs a decoder-only one")
