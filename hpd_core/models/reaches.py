"""Range of a model's tokens: windows and chunks, shortened so that a short text reaches beyond them.

A window of 4,096 tokens has no effect in a text that is short enough to decode at every start. If it is as short as a
line, a few lines show its effect. Then the model's own attention applies it, and ours does if it knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHORT = 24
"""Length of shortened windows in tokens; the text that is decoded with them is several times as long."""

_SETTINGS = (
    *("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "local_attention"),
    *("floor_scale", "log_scaling_n_floor"),  # Llama 4 and Inkling scale some queries anew behind so many tokens
)
_OF_SCALES = "original_max_position_embeddings"
"""Setting by which Ministral 3 and Mistral 4 scale queries, too; it is among those of their rotary embedding."""


@contextmanager
def shortened(model: Any) -> Iterator[list[str]]:
    """Limit the model's windows, chunks and query-scaling lengths to `SHORT` while the context is entered.

    Yields:
        Names of the shortened settings in the configuration with their former values; empty if none was longer.
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
