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
    "floor_scale",  # Llama 4 scales some queries anew behind so many tokens each
)


@contextmanager
def shortened(model: Any) -> Iterator[list[str]]:
    """While it is entered, no window or chunk of the model is longer than `SHORT`.

    Yields:
        What the shortened settings are called in the configuration, and what they were; empty where none was longer.
    """
    owners = {id(each): each for each in (model.config.get_text_config(), *model.modules())}
    owners |= {id(each.config): each.config for each in model.modules() if hasattr(each, "config")}
    before = [
        (owner, name, value)
        for owner in owners.values()
        for name in _SETTINGS
        if type(value := vars(owner).get(name)) is int and value > SHORT
    ]
    try:
        for owner, name, _ in before:
            setattr(owner, name, SHORT)
        yield sorted({f"{name} of {value}" for _, name, value in before})
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
