"""How far a model's tokens see: windows and chunks, made short so that a short text reaches beyond them.

A window of 4,096 tokens shows in no text that could be decoded at every start. Made as short as a line, it shows in a
few lines, to the model's own attention and to ours, if ours is told of it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHORT = 24
"""Tokens; the text that is decoded with such windows has several times as many."""

_SETTINGS = (
    *("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "local_attention"),
    *("floor_scale", "log_scaling_n_floor"),  # Llama 4 and Inkling scale some queries anew behind so many tokens
)
_OF_SCALES = "original_max_position_embeddings"
"""Of Ministral 3 and Mistral 4, which do so, too; it stands among the settings of their rotary embedding."""


@contextmanager
def shortened(model: Any) -> Iterator[list[str]]:
    """While it is entered, no window or chunk of the model is longer than `SHORT`, nor what queries are scaled by.

    Yields:
        What the shortened settings are called in the configuration, and what they were; empty where none was longer.
    """
    owners = {id(each): each for each in (model.config.get_text_config(), *model.modules())}
    owners |= {id(each.config): each.config for each in model.modules() if hasattr(each, "config")}
    settings = [(vars(owner), name) for owner in owners.values() for name in _SETTINGS]
    ropes = [rope for owner in owners.values() if isinstance(rope := vars(owner).get("rope_parameters"), dict)]
    settings += [(rope, _OF_SCALES) for rope in {id(each): each for each in ropes}.values() if _scales_queries(rope)]
    before = [(holder, name, holder[name]) for holder, name in settings if _is_long(holder.get(name))]
    try:
        for holder, name, _ in before:
            holder[name] = SHORT
        yield sorted({f"{name} of {value}" for _, name, value in before})
    finally:
        for holder, name, value in before:
            holder[name] = value


def _is_long(value: Any) -> bool:
    return type(value) is int and value > SHORT


def _scales_queries(rope: dict[str, Any]) -> bool:
    return rope.get("llama_4_scaling_beta") is not None
