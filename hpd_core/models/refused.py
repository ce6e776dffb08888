"""Models that are refused though we know their layers, by the `model_type` of their text, and what to take instead."""

from __future__ import annotations

from typing import Any

from hpd_core.errors import ModelError

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


def refuse(model_config: Any) -> None:
    """Raise `ModelError` for such a model."""
    if why := _WHY.get(model_config.get_text_config().model_type):
        raise ModelError(f"{model_config.model_type} models cannot be used: {why}")
